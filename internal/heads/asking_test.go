package heads

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
)

// Whoever asks for a place makes the cluster say what is the latest. So only some do at a time; another one is told to ask again.
func TestFewAskAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{Fleet: &fleet.Fleet{}}) // which would panic
		for range maxAsking {
			d.asking <- struct{}{}
		}
		_, token, _ := auth.NewToken()
		body, err := json.Marshal(Ask{Token: token.Reveal(), ID: "0123456789abcdef", Peer: "https://10.0.0.1:7480"})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", Prefix+"join", nil)
		if _, err := d.join(r, auth.Peer{}, body); !errors.Is(err, trivet.ErrUnavailable) || !again(err) {
			t.Error(err)
		}
	})
}
