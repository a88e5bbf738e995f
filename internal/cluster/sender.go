package cluster

import (
	"fmt"
	"net/http"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/trivet-project/trivet"
)

// VerifySender returns ErrUnauthenticated for a request to the PeerHandler in the name of another member than that of
// the caller's certificate, or of one that was removed. While this member knows no leader, it may lag, and a member that
// it does not know may be the leader.
func (m *Member) VerifySender(r *http.Request, name string) error {
	from := r.Header.Get("X-Server-From")
	if from == "" && (!strings.HasPrefix(r.URL.Path, "/raft") || r.URL.Path == "/raft/probing") {
		return nil // it carries no message
	}
	id, err := types.IDFromString(from)
	if err != nil {
		return fmt.Errorf("%w: a message of %s without the ID of its member", trivet.ErrUnauthenticated, name)
	}
	all := m.etcd.Server.Cluster()
	removed, _ := all.(interface{ IsIDRemoved(types.ID) bool })
	switch known := all.Member(id); {
	case removed != nil && removed.IsIDRemoved(id):
		return fmt.Errorf("%w: the member %s of %s was removed", trivet.ErrUnauthenticated, from, name)
	case known == nil && m.HasLeader():
		return fmt.Errorf("%w: the member %s of %s is not known", trivet.ErrUnauthenticated, from, name)
	case known != nil && known.Name != "" && known.Name != name:
		return fmt.Errorf("%w: a message of %s in the name of %s", trivet.ErrUnauthenticated, name, known.Name)
	}
	return nil
}
