// Package modify changes objects of a snapshot on their way to a target: where credentials differ
// by design, an operator describes the difference in a document of Velero's resource modifiers.
//
//	version: v1
//	resourceModifierRules:
//	- conditions:
//	    groupResource: secrets
//	    resourceNameRegex: ^cloud-credentials$
//	  mergePatches:
//	  - patchData: |
//	      stringData: {password: another}
//
// The format and its meaning are those of Velero v1.18 (internal/resourcemodifiers), with these
// differences. Errors are found before anything is written, all of the document at once. Strategic
// patches are refused: custom resources have no merge keys. What identifies an object, ties it to
// others or pauses it cannot be changed (see protected). stringData of a Secret becomes its data,
// as the API server stores it.
//
// A document may hold credentials. Errors, paths and digests that leave the package hold none of
// its values (invariant I6).
package modify
