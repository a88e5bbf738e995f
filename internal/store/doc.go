// Package store keeps Trivet's records: typed tables with indexes, transactions, a change feed, a work queue and leases,
// over etcd. Nobody above this package knows etcd.
//
// One etcd watch of everything feeds one local copy, the [snapshot]: immutable, ordered, replaced as a whole at each
// revision. Reads are answered from it without a lock, without the network and without a leader; what is read is
// constant, so callers get copies.
//
// A write is a function that is run on one snapshot ([Store.Update]). What it read, and what it writes, is recorded with its
// ModRevision; one etcd transaction compares them all and writes. Where a compare fails the function is run again on a newer
// snapshot. Three things make that safe:
//
//   - Every write carries the transaction's ID, either in the records it puts or, where it only deletes, in a key of its
//     own. The feed sees all IDs, so that it knows which transactions were committed.
//   - Every transaction compares the guard, a key of this head. When an outcome is unknown the guard is written: from then on
//     the lost transaction is either in the feed, or can never be committed (see learn).
//   - An error of the function counts only once a quorum confirmed what the function had read (see confirm).
//
// The files, in the order of the pipeline: key and entry (what stands in etcd), snapshot, feed (etcd to snapshot), history
// and watch (snapshot to consumers), table and raw (reads), tx (what a function reads and writes), merge (fields that we do
// not know), update and learn (commit); then queue, lease and limit, which are built on these.
package store
