// Package membership is how heads become members of a cluster and leave it: both sides of join, replace, remove and
// renew, and the identity of this head in its data directory.
//
// A head that joins goes through these files: join_local.go decides whether a start joins and stores what it gets,
// join_client.go sends the [JoinRequest] to a head of the cluster, join_server.go answers it there, by checks
// (join_check.go), the record of the new head (join_record.go) and a learner in the store (join_member.go). Then the
// new head verifies its membership (verify_client.go), starts its member and registers itself (register.go). When it
// has caught up, a [Reconciler] on any head promotes it to a voter (promote.go).
package membership
