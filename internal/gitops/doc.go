// Package gitops finds the tools that apply the objects of workload clusters: Flux, Argo CD, Helm,
// Fleet, and the operators of k0rdent, Azimuth and Magnum. Such a tool ends a pause that somebody
// else set, and creates an object again that somebody else removed. So a move has to see them
// suspended before it pauses anything.
//
// # Vocabulary
//
//   - owner: an object from which a tool applies others, such as a Kustomization or an Application.
//   - claim: what an object says of its owner, in labels, annotations, owner references and
//     managedFields.
//   - inventory: what an owner says of the objects that it applies, in its status.
//   - parent: the owner of an owner. A root has none.
//   - switch: the field by which a tool suspends one owner.
//   - absent: an owner that objects name and that this management cluster does not have. Its tool
//     runs elsewhere, or the owner was removed and left its marks.
//
// # Invariants
//
//   - Search reads lists, and changes nothing (I7).
//   - An owner that could not be searched for is in Result.Unread. It never counts as missing.
//   - Each rule is one row of a table, with the project and the file that it comes from.
package gitops
