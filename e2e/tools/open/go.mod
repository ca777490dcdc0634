// The programs by which docs/format.md opens a snapshot without mgmtctl, from the module proxy: age, minisign, jq (gojq) and zstd.
module github.com/mgmtd/mgmtd/e2e/tools/open

go 1.26.0

require github.com/DataDog/zstd v1.5.7

require (
	aead.dev/minisign v0.3.0 // indirect
	filippo.io/age v1.3.2 // indirect
	filippo.io/edwards25519 v1.2.0 // indirect
	filippo.io/hpke v0.4.0 // indirect
	filippo.io/nistec v0.0.4 // indirect
	github.com/clipperhouse/stringish v0.1.1 // indirect
	github.com/clipperhouse/uax29/v2 v2.3.0 // indirect
	github.com/itchyny/go-yaml v0.0.0-20251001235044-fca9a0999f15 // indirect
	github.com/itchyny/gojq v0.12.19 // indirect
	github.com/itchyny/timefmt-go v0.1.8 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/mattn/go-runewidth v0.0.19 // indirect
	golang.org/x/crypto v0.55.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/term v0.45.0 // indirect
)

tool (
	aead.dev/minisign/cmd/minisign
	filippo.io/age/cmd/age
	github.com/itchyny/gojq/cmd/gojq
)
