package main

import (
	"log/slog"
	"os"
	"slices"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/config"
)

// readConfig reads the file of --config once. It has no effect without --standalone.
func (p *program) readConfig() error {
	if p.config != nil || !p.standalone.enabled || !p.given("config") {
		return nil
	}
	c, err := config.LoadStandalone(p.standalone.config)
	if err != nil {
		return &service.Error{Reason: service.ReasonUsage, Message: err.Error(),
			Hint: "docs/config.md has every field"}
	}
	p.config = c
	p.leaveOutSigningKey()
	return nil
}

// leaveOutSigningKey leaves out a signing key of the file of --config that cannot be read: it is
// often on the host of the daemon only, and a restore can do without it. A command that needs one
// says so.
func (p *program) leaveOutSigningKey() {
	locations := p.config.Service.Locations
	file := locations[0].Store.SigningKeyFile
	if file == "" || p.standalone.signingKey != "" {
		return
	}
	f, err := os.Open(file)
	if err == nil {
		_ = f.Close() // it is read later
		return
	}
	p.say("warning: the signing key of the configuration cannot be read, so nothing is signed: %v",
		err)
	for i := range locations {
		locations[i].Store.SigningKeyFile = ""
	}
}

// warnOfSigningKey warns of a signing key that others can read.
func (p *program) warnOfSigningKey() {
	file := p.standalone.signingKey
	if file == "" && p.config != nil {
		file = p.config.Service.Locations[0].Store.SigningKeyFile
	}
	if who := service.ExposedKey(file); who != "" {
		p.sayExposed(file, who)
	}
}

// configHas reports whether the file of --config replaces a flag that a command needs.
func (p *program) configHas(flag string) bool {
	if p.config == nil {
		return false
	}
	c := &p.config.Service
	keys := c.Locations[0].Store // every location has the same
	switch flag {
	case "store", "source-kubeconfig", "target-kubeconfig":
		return true // a file without these is refused
	case "recipient":
		return keys.Plain || len(keys.Recipients) > 0
	case "signing-key":
		return keys.Plain || keys.SigningKeyFile != ""
	case "trusted-key": // who signs trusts its own key
		return keys.Plain || keys.SigningKeyFile != "" || len(keys.TrustedKeyFiles) > 0
	case "identity":
		return keys.Plain || p.config.IdentityFile != ""
	default:
		return false
	}
}

// serviceConfig returns the configuration of the service inside this process: the file of --config,
// and the flags, which override it. Of the file it uses the management clusters, the storage
// locations, the keys and the kinds. The catalog is that of the flags: the daemon may have its own
// one open, and may be on another host.
func (p *program) serviceConfig(f standaloneFlags) (service.Config, error) {
	catalog, err := p.catalogFile()
	if err != nil {
		return service.Config{}, err
	}
	cfg := service.Config{
		CatalogFile: catalog,
		Log: slog.New(slog.NewTextHandler(p.stderr,
			&slog.HandlerOptions{Level: slog.LevelWarn})),
		Version: readBuild().Version,
	}
	var keys service.StoreOptions
	if p.config != nil {
		from := &p.config.Service
		cfg.Sources, cfg.Targets, cfg.Locations = from.Sources, from.Targets, from.Locations
		cfg.Rows, cfg.Retention = from.Rows, from.Retention
		keys = from.Locations[0].Store
	}
	f.addKeys(&keys)
	for i := range cfg.Locations {
		f.addKeys(&cfg.Locations[i].Store)
	}
	if f.store != "" && !(f.location && len(cfg.Locations) > 0) || len(cfg.Locations) == 0 {
		keys.URL, keys.S3 = f.store, nil
		cfg.Locations = []service.Location{{Store: keys}}
	}
	if f.copyTo != "" {
		cfg.Locations = withCopy(cfg.Locations, f.copyTo, keys)
	}
	if f.sourceKubeconfig != "" {
		cfg.Sources = []kube.Options{{Name: f.sourceName, KubeconfigFile: f.sourceKubeconfig,
			Context: f.sourceContext}}
	}
	if f.targetKubeconfig != "" {
		cfg.Targets = []kube.Options{{Name: f.targetName, KubeconfigFile: f.targetKubeconfig,
			Context: f.targetContext}}
	}
	return cfg, nil
}

// withCopy returns locations and one at a URL, which is its name, too. The only one before stays
// the one of requests that name none.
func withCopy(locations []service.Location, url string,
	keys service.StoreOptions) []service.Location {
	all := slices.Clone(locations)
	if len(all) == 1 {
		all[0].Default = true
	}
	keys.URL, keys.S3 = url, nil
	return append(all, service.Location{Name: url, Store: keys})
}

// addKeys replaces the keys that flags name.
func (f *standaloneFlags) addKeys(o *service.StoreOptions) {
	switch {
	case f.plain:
		o.Plain, o.Recipients = true, nil
	case len(f.recipients) > 0:
		o.Plain, o.Recipients = false, f.recipients
	}
	if f.signingKey != "" {
		o.SigningKeyFile = f.signingKey
	}
	if len(f.trustedKeys) > 0 {
		o.TrustedKeyFiles = f.trustedKeys
	}
}

// mgmtNames returns the management clusters of the file of --config, for completion.
func (p *program) mgmtNames() []string {
	if p.readEnvironment() != nil || p.readConfig() != nil || p.config == nil {
		return nil
	}
	var names []string
	for _, m := range p.config.Service.Sources {
		names = append(names, m.Name)
	}
	return names
}

// locationNames returns the storage locations of the file of --config, for completion.
func (p *program) locationNames() []string {
	if p.readEnvironment() != nil || p.readConfig() != nil || p.config == nil {
		return nil
	}
	var names []string
	for _, l := range p.config.Service.Locations {
		names = append(names, l.Name)
	}
	return names
}
