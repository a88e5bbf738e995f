package store

import clientv3 "go.etcd.io/etcd/client/v3"

// defects are bugs that tests switch on, to see that they would find them. Nothing else sets them.
type defects struct {
	noCompare bool                       // commit without comparing what was read
	forgetID  bool                       // run again after an unknown outcome, without learning it
	lose      func(*clientv3.Event) bool // leave out these events of the watch
}

func (d *defects) drop(ev *clientv3.Event) bool { return d.lose != nil && d.lose(ev) }
