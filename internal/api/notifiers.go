package api

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/notify"
	"github.com/trivet-project/trivet/internal/state"
)

// admitNotifier refuses reasons that no event has, and more notifiers than a site may have.
func (h *Handler) admitNotifier(c *change, old, next *trivet.Notifier) error {
	if next == nil {
		return nil
	}
	for i, reason := range next.Spec.Events {
		if !slices.Contains(trivet.EventReasons, reason) {
			return &trivet.FieldError{Field: fmt.Sprintf("spec.events[%d]", i), Problem: fmt.Sprintf(
				"%q is the reason of no event; the reasons are %s", reason, strings.Join(trivet.EventReasons, ", "))}
		}
	}
	if old != nil {
		return nil
	}
	if all := h.Fleet.Notifiers.In(c.tx).ListBy(state.ByNotifier, state.IsNotifier); len(all) >= trivet.MaxNotifiers {
		return &trivet.Error{Op: "create", Kind: "Notifier", Name: next.Name, Hint: "delete one that is not needed",
			Err: fmt.Errorf("%w: a site has at most %d notifiers", trivet.ErrConflict, trivet.MaxNotifiers)}
	}
	return nil
}

// notifierRoutes are the operations on notifiers besides their records.
func (h *Handler) notifierRoutes() {
	h.add(route{method: "POST", path: "/v1/notifiers/{name}/test", verb: auth.Write, kind: "Notifier",
		summary: "Send a test event from this head, and return the outcome",
		out:     reflect.TypeFor[trivet.NotifierTest](), outside: true,
		serve: func(w http.ResponseWriter, r *http.Request, _ *caller) error {
			n, err := h.Fleet.Notifiers.Get(r.PathValue("name"))
			if err != nil {
				return err
			}
			return respond(w, http.StatusOK, h.testNotifier(r.Context(), n))
		}})
}

// testNotifier sends a test event. What is pending and the state of the notifier are as before.
func (h *Handler) testNotifier(ctx context.Context, n *trivet.Notifier) trivet.NotifierTest {
	message := notify.NewTest(h.Version.Cluster, n, h.Fleet.Self())
	outcome, start := trivet.NotifierTest{ID: message.ID, Head: h.Fleet.Self()}, time.Now()
	err := h.sendTest(ctx, n, message)
	outcome.Delivered, outcome.Took = err == nil, trivet.Duration(time.Since(start).Round(time.Millisecond))
	if err != nil {
		outcome.Error = err.Error()
	}
	return outcome
}

func (h *Handler) sendTest(ctx context.Context, n *trivet.Notifier, message notify.Message) error {
	var secret *trivet.Secret
	if name := n.Secret(); name != "" {
		var err error
		if secret, err = h.Fleet.Secrets.Get(trivet.Resolve("", name)); err != nil {
			return err
		}
	}
	sender, err := notify.Open(n, secret, h.unseal)
	if err != nil {
		return err
	}
	defer sender.Close()
	_, err = sender.Send(ctx, []notify.Message{message})
	return err
}

// unseal returns one value of a secret.
func (h *Handler) unseal(secret *trivet.Secret, key string) (string, error) {
	value, err := h.Keys.Sealer.Open(auth.FieldRef{Kind: "Secret", Name: secret.FullName(), Field: key},
		secret.Spec.Data[key])
	return value.Reveal(), err
}
