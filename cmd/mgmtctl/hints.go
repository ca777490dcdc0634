package main

import (
	"regexp"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// findingCommands are the commands and flags that mgmtctl adds to the hint of a finding. The
// service names none, because a client of its API has others.
var findingCommands = map[object.Code]string{
	object.CodeSourceNotGone:     "--source-is-gone, or --no-release",
	object.CodeSourceAnswers:     "mgmtctl mgmt fence SOURCE --all",
	object.CodeSourceLastSeen:    "standalone --source-kubeconfig FILE",
	object.CodeSnapshotAge:       "--no-release stops before the release",
	object.CodeNotNewest:         "--snapshot latest",
	object.CodeOwnerMissing:      "--drop-owner OWNER",
	object.CodeOwnerLate:         "--drop-owner OWNER",
	object.CodeNeedMissing:       "--no-release stops before the release",
	object.CodeUnowned:           "--include-unowned",
	object.CodeKubeconfigExpired: "--renew-kubeconfigs",
	object.CodeCAMissing:         "mgmtctl snapshot list",
	object.CodeCAInvalid:         "mgmtctl snapshot list",

	object.CodeUnitFailed:         "mgmtctl operation resume ID",
	object.CodeSharedFailed:       "mgmtctl operation resume ID",
	object.CodeObserve:            "mgmtctl operation accept ID NAMESPACE/NAME",
	object.CodeChangedByTarget:    "--accept-difference Kind.group:path",
	object.CodeWouldRollOut:       "--accept-difference Kind.group:path",
	object.CodeFenced:             "mgmtctl mgmt fence NAME --lift --workload NAMESPACE/NAME",
	object.CodeNotFenced:          "mgmtctl mgmt fence NAME",
	object.CodeOperationMark:      "mgmtctl operation resume ID",
	object.CodeSignature:          "--trusted-key signing.pub",
	object.CodeNotRecorded:        "--no-record verifies without a record",
	object.CodeSnapshotMissing:    "mgmtctl prune run --accept-gaps",
	object.CodeEnvelopeUntrusted:  "mgmtctl snapshot delete KEY --damaged",
	object.CodeEnvelopeUnreadable: "mgmtctl snapshot delete KEY --damaged",
	object.CodeContractMissing:    "mgmtctl snapshot coverage",
	object.CodeNothingSelected:    "mgmtctl snapshot coverage --selector LABELS",
	object.CodeOperationKnown:     "mgmtctl operation rollback ID",
	object.CodeWorkLeft:           "mgmtctl operation resume ID, mgmtctl operation rollback ID",
	object.CodeNotRetired:         "mgmtctl operation resume ID",
	object.CodeCopyLeft:           "mgmtctl operation rollback ID",
	object.CodeSourceAway:         "mgmtctl operation resume ID --without-source --identity FILE",
	object.CodeTargetAway:         "mgmtctl operation rollback ID --without-target",
	object.CodeMirrorOpen:         "standalone --store URL, --signing-key FILE",
	object.CodeCopyUnproven:       "standalone --store URL",
	object.CodeRecipientMissing:   "--recipient age1…, or spec.recipients of the configuration",
}

// overrideCommands are what mgmtctl adds to the hint of a finding that blocks. A finding that was
// overridden is a warning and does not need them.
var overrideCommands = map[object.Code]string{
	object.CodeLeftByOperation: "mgmtctl operation resume ID; mgmtctl operation rollback " +
		"--from-marks when its journal is lost",
	object.CodeOwnersUnread: "standalone --store URL; --force owners-unread when that store " +
		"is lost",
	object.CodeSourceSeenRecently: "then add --force source-seen-recently",
	object.CodeFencedHere: "mgmtctl mgmt fence TARGET --lift; --force fenced-here when no other " +
		"management cluster reconciles it",
	object.CodeOwnerDamaged:      "then add --force owner-damaged",
	object.CodeOwnerRefuses:      "then add --force owner-refuses",
	object.CodeOwnerSeenRecently: "then add --force owner-seen-recently",
	object.CodeEpochWentBack:     "then add --force epoch-went-back",
	object.CodeOwnedElsewhere: "--force owned-elsewhere=NAME, with the name of that one, " +
		"takes it over",
	object.CodeGitOpsOwner:       "or move with --suspend-gitops",
	object.CodeGitOpsOwnerRemote: "then add --force gitops-owner-remote",
	object.CodeGitOpsUnread:      "then add --force gitops-unread",

	object.CodeProviderOlder: "--force provider-older takes the risk",
	object.CodeFeatureGate:   "--force feature-gate moves without it",
	object.CodePauseUnknown:  "then add --force pause-unknown",
	object.CodePauseIgnored:  "then add --force pause-ignored",
	object.CodeIncomplete:    "--force incomplete restores it without them",
	object.CodeNeedMissing:   "--force need-missing takes the risk",
	object.CodeRefused:       "--force refused restores its workload cluster without it",
	object.CodeExtraOnTarget: "mgmtctl operation list, mgmtctl operation rollback ID; mgmtctl " +
		"operation rollback --from-marks when its journal is lost; --force extra-on-target takes it " +
		"as it is",
	object.CodeHeld:                "mgmtctl operation list; --force held unpauses it as it was",
	object.CodeFenceUnacknowledged: "then restore with --force fence-unacknowledged",
	object.CodeLocked: "mgmtctl operation resume ID, or mgmtctl operation rollback ID; --force " +
		"locked when that operation, its catalog and its mirror are lost",
	object.CodeOwnershipFromCopy: "--force ownership-from-copy when the origin is lost",
	object.CodeProvisioning:      "--force provisioning takes the risk",
	object.CodeUpdatingInPlace:   "--force updating-in-place when the source works on none of them",
	object.CodeWouldAdopt:        "--force would-adopt when it is to be adopted",
	object.CodeRetireRefused:     "--force retire-refused when that is lifted before the release",
	object.CodePoolShared:        "--force pool-shared when its ranges are known not to collide",
	object.CodeWorkLeft:          "--force work-left gives up what is left",
	object.CodeNotRetired:        "--force not-retired when the source is gone for good",
	object.CodeMirrorOpen:        "--force mirror-open forgets it in this catalog alone",
	object.CodeNoMirror:          "mgmtctl operation resume ID --force no-mirror",
	object.CodeStoreAway:         "mgmtctl operation rollback ID --without-target --force store-away",
	object.CodeNoFence:           "--no-fence moves without ownership records",

	object.CodeCAMismatch:         "--force ca-mismatch when another server answers there",
	object.CodeMachinesGone:       "--force machines-gone releases it all the same",
	object.CodeHostedControlPlane: "--force hosted-control-plane when its etcd runs elsewhere",
}

// errorCommands are the same for errors, by the key of their hint. KIND is "restore" or "move".
var errorCommands = map[object.HintKey]string{
	object.HintKubeconfig: "--source-kubeconfig or --target-kubeconfig, and --source-context or " +
		"--target-context",
	object.HintCatalogFull:      "--catalog FILE",
	object.HintAcceptDifference: "mgmtctl restore run --accept-difference Kind.group:path",
	object.HintAccept:           "mgmtctl operation accept ID NAMESPACE/NAME",
	object.HintNamespace:        "--namespace NS",
	object.HintOperation:        "mgmtctl operation show ID",
	object.HintPlan:             "mgmtctl KIND plan",
	object.HintDeleteDamaged:    "mgmtctl snapshot delete KEY --damaged",
	object.HintUnpin:            "mgmtctl snapshot unpin ID",
	object.HintSnapshots:        "mgmtctl snapshot list",
	object.HintObjects:          "mgmtctl snapshot ls ID",
	object.HintAnySnapshot:      "mgmtctl snapshot ls",
	object.HintMgmtName:         "as the argument NAME",
	object.HintFullSnapshot:     "mgmtctl snapshot create --full",
	object.HintVerify:           "mgmtctl snapshot verify ID",
	object.HintStoreURL:         "--store URL",
	object.HintPlain:            "--plain",
	object.HintNotPlain:         "leave out --plain",
	object.HintRecipient:        "--recipient age1…, or --plain",
	object.HintIdentity:         "--identity FILE",
	object.HintSigningKey:       "--signing-key FILE",
	object.HintTrustedKey:       "--trusted-key signing.pub",
	object.HintKeyFolder:        "--out DIR",
	object.HintSignOrNoFence:    "--signing-key FILE, or --no-fence",
	object.HintNoFence:          "--no-fence",

	object.HintSource:              "--source NAME",
	object.HintTarget:              "--target NAME",
	object.HintSourceKubeconfig:    "--source-kubeconfig FILE",
	object.HintTargetKubeconfig:    "--target-kubeconfig FILE",
	object.HintLiveSource:          "--source NAME, or standalone --source-kubeconfig FILE",
	object.HintLocation:            "--location NAME",
	object.HintLive:                "--live",
	object.HintFirstSnapshot:       "mgmtctl snapshot create",
	object.HintSnapshotCreate:      "mgmtctl snapshot create",
	object.HintPrunePlan:           "mgmtctl prune plan -o json",
	object.HintNewSigningKey:       "--signing-key FILE, which keygen makes",
	object.HintIdentityOrStructure: "--identity FILE, or --level structure",
	object.HintOperations:          "mgmtctl operation list",
	object.HintWatch:               "mgmtctl operation watch ID",
	object.HintResume:              "mgmtctl operation resume ID",
	object.HintRollback:            "mgmtctl operation rollback ID",
	object.HintResumeWithIdentity:  "mgmtctl operation resume ID --identity FILE",
	object.HintResourceModifiers:   "--resource-modifiers FILE",
	object.HintResumeWithModifiers: "mgmtctl operation resume ID --resource-modifiers FILE",
	object.HintGiveUpMirror:        "--force no-mirror",

	object.HintStoreAway:     "mgmtctl operation rollback ID --without-target --force store-away",
	object.HintWithoutTarget: "mgmtctl operation rollback ID --without-target",
	object.HintWithoutSource: "mgmtctl operation resume ID --without-source --identity FILE",
}

// withCommands adds commands to a hint.
func withCommands(hint, commands string) string {
	if hint == "" || commands == "" {
		return hint
	}
	return hint + " (" + commands + ")"
}

// completeHint adds our commands to the hint of a finding when it arrives, so that tables and JSON
// documents have the same.
func (p *program) completeHint(f *mgmtv1.Finding) {
	code, hint := object.Code(f.GetCode()), f.GetHint()
	f.Hint = withCommands(hint, p.expandFor(f.GetUnit(), p.withSwitch(findingCommands[code]),
		f.GetMessage(), hint))
	if f.GetSeverity() >= mgmtv1.Severity_SEVERITY_ERROR {
		f.Hint = withCommands(f.GetHint(), p.expandFor(f.GetUnit(), overrideCommands[code],
			f.GetMessage(), hint))
	}
}

// oneSwitch matches a text of findingCommands that is a flag without a value.
var oneSwitch = regexp.MustCompile(`^--[a-z-]+$`)

// withSwitch returns this command with the flag, where the command has it; else the flag. The flags
// of a plan in a file are not those of this command.
func (p *program) withSwitch(commands string) string {
	if !oneSwitch.MatchString(commands) || p.current == nil || p.planFile != "" ||
		p.current.Flag(strings.TrimPrefix(commands, "--")) == nil {
		return commands
	}
	return p.again(commands)
}

// completeMessage adds our commands to the message of an operation, which ends with the hint of
// this key.
func (p *program) completeMessage(message, key string) string {
	return withCommands(message, p.expand(errorCommands[object.HintKey(key)], message))
}

// oneFlag matches a text of errorCommands that is a flag of the refused command.
var oneFlag = regexp.MustCompile(`^--[a-z-]+( [A-Z]+| signing\.pub| no-mirror)?$`)

// hintOf returns the hint of an error, and the next command to type: the one that the hint names,
// or the same one with the flag that it lacks. It is empty when there are several ways.
func (p *program) hintOf(e *service.Error) (hint, next string) {
	commands := errorCommands[e.HintKey]
	if e.Hint == "" || commands == "" {
		return e.Hint, ""
	}
	if commandTemplate.FindString(commands) == commands {
		return e.Hint, p.expand(commands, e.Message, e.Hint)
	}
	words := strings.Fields(commands)
	if oneFlag.MatchString(commands) && (p.standalone.enabled ||
		p.flags.standalone.Lookup(strings.TrimPrefix(words[0], "--")) == nil) {
		next = p.again(words...)
	}
	return withCommands(e.Hint, p.expand(commands, e.Message, e.Hint)), next
}
