package store

import clientv3 "go.etcd.io/etcd/client/v3"

// defects are bugs that tests enable to prove that they detect them. Only tests set them.
type defects struct {
	noCompare bool                       // commit without comparing what was read
	forgetID  bool                       // rerun after an unknown outcome, without resolving it
	lose      func(*clientv3.Event) bool // drop these events of the watch
}

func (d *defects) drop(ev *clientv3.Event) bool { return d.lose != nil && d.lose(ev) }
