// Package cluster treats several heads badly, for real: each is a process in a network namespace of its own, on one switch
// that the test makes. While agents run workflows, programs write and machines boot, heads are killed, stopped, cut off, far
// away, starved and restarted, their clocks jump, and their disks are slow, full, or lose what was not synced. What all of
// them saw is written down, and each guarantee of the design is checked afterwards against that history.
//
// That the checker finds what it is there for is shown by a bug for each guarantee (internal/faultinject), in programs built for it.
//
// CHAOS_SEED sets the seed, which is printed and also decides what kind of round it is; CHAOS_ONLY names the faults that are done
// ("kill two,slow disk"); what a run has left is kept in the folder CHAOS_KEEP.
//
// A run goes through the files so: inside (a world of the test's own), fabric and wire (the switch, and long links), head and
// site (the heads), load_* (what runs meanwhile), fault_* (what goes wrong), history (what was seen), check_* (what must hold).
package cluster
