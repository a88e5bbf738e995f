// Package store keeps Trivet's records: typed tables with indexes, transactions, a change feed, a work queue and
// leases, over etcd. Packages above this one do not know etcd.
//
// One etcd watch of all keys feeds one local copy, the [snapshot]: immutable, ordered, and replaced as a whole at
// each revision. Reads are served from it without a lock, without the network and without a leader. Its records are
// shared and read-only, so most callers get copies.
//
// A write is a function that runs on one snapshot ([Store.Update]). Every key that it reads or writes is recorded
// with its ModRevision; one etcd transaction compares them all and writes. If a compare fails, the function runs
// again on a newer snapshot. Three rules make this safe:
//
//   - Every write carries the transaction's ID, either in the records it puts or, if it only deletes, in a separate
//     key. The feed sees all IDs, so it knows which transactions were committed.
//   - Every transaction compares the guard, a key of this head. When an outcome is unknown, the guard is written: from
//     then on the transaction is either in the feed, or can never be committed (see resolve).
//   - An error of the function is returned only after a quorum confirmed what the function had read (see confirm).
//
// The files, in the order of the pipeline: key and entry (the format in etcd), snapshot, feed (etcd to snapshot),
// history and watch (snapshot to consumers), table and raw (reads), tx (what a function reads and writes), merge
// (unknown fields), update and resolve (commit); then list and lease, which are built on these; change (what a
// transaction writes), cold (streams of history, which are not in the snapshot), coldkind, coldtable and coldtx
// (records that are not), former and formerread (records that are no longer), and active, sealed and reseal (the key
// that values are encrypted with, and its replacement).
package store
