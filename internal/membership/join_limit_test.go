package membership

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
)

// Each join request reads the latest revision by the quorum. So the concurrent ones are limited; another one is to
// retry.
func TestConcurrentJoinsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerConfig{Records: &Records{}}) // using it would panic
		for range maxConcurrentJoins {
			s.joins <- struct{}{}
		}
		_, token, _ := auth.NewToken()
		body, err := json.Marshal(JoinRequest{Token: token.Reveal(), ID: "0123456789abcdef",
			Peer: "https://10.0.0.1:7480"})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", peer.Prefix+joinPath, nil)
		if _, err := s.join(r, auth.Peer{}, body); !errors.Is(err, trivet.ErrUnavailable) || !peer.Retryable(err) {
			t.Error(err)
		}
	})
}
