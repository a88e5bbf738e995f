// Package ownership decides what an apply changes: which fields of a record belong to which manager, what a manager
// sets and removes, and what it must not overwrite. It is the field ownership of Kubernetes' server-side apply, with
// lists as a whole, and with one manager, Direct, for all writes that are not applies.
//
// A field is a property of labels, annotations or spec that is not an object itself. It is named by a JSON pointer
// (RFC 6901), such as /spec/bmc/address. A record has the fields of each manager in [trivet.Meta.Managed]:
//
//   - An apply sets the fields that it has, removes those that its manager had and that no other manager has, and
//     leaves all others. Then its manager has the fields of the apply.
//   - It is refused where it would change a field of another manager, unless it is forced: then that one loses it.
//   - Any other write that changes a field of a manager gives it to Direct. A field that no manager has is free.
package ownership
