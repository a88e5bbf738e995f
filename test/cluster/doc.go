// Package cluster tests several heads under faults: each is a process in a network namespace of its own, on one
// switch that the test creates. While agents run workflows, programs write and machines boot, heads are killed,
// stopped, cut off, delayed, starved and restarted, their clocks jump, their disks are slow, full, or lose what was not
// synced, the store is filled up to its quota, and the BMCs of machines are slow, err, or do nothing. What all of them
// observed is recorded, and each guarantee of the design is checked afterwards against that history.
//
// Bugs that are enabled for a test (internal/faultinject), in programs that are built with them, show that the checker
// finds violations.
//
// CHAOS_SEED sets the seed, which is printed and also decides what kind of round it is; CHAOS_ONLY names the faults to
// inject ("kill two,slow disk"); CHAOS_MACHINES is the number of machine records, and CHAOS_AGENTS that of simulated
// machines; logs and history are kept in the directory CHAOS_KEEP.
//
// A run passes through the files in this order: inside (namespaces of the test's own), fabric and wire (the switch,
// and long links), head and site (the heads), load_* (what runs meanwhile), fault_* (the faults), history (what was
// observed), check_* (the guarantees).
package cluster
