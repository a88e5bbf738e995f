package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Programs write to templates that are not used: the value of a key is a label.

const (
	keys     = 4
	pulseKey = "pulse"
	// A request is abandoned after this long; its write may still be committed.
	opTimeout = 6 * time.Second
	// pulseInterval is the time between two writes of pulse.
	pulseInterval = 20 * time.Millisecond
)

func keyName(i int) string { return fmt.Sprint("key", i) }

func (l *load) prepareKeys(ctx context.Context) error {
	var errs []error
	for i := range keys {
		errs = append(errs, l.make(ctx, keyRecord(keyName(i), "")))
	}
	errs = append(errs, l.make(ctx, keyRecord(pulseKey, "")), l.make(ctx, keyRecord(markKey, "")))
	_, revision, err := client.Of[trivet.Template](l.sdk).List(ctx, client.ListOptions{})
	l.from, l.whole = revision, revision
	return errors.Join(append(errs, err)...)
}

func keyRecord(name, value string) *trivet.Template {
	return &trivet.Template{
		Meta: trivet.Meta{Name: name, Labels: map[string]string{"v": value}},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "nothing", Use: "noop"}}},
	}
}

func valuePatch(value string) []byte {
	text, _ := json.Marshal(map[string]any{"labels": map[string]string{"v": value}}) // cannot fail
	return text
}

// write does operations on any head. None is done again where it may have been done, so that each happens once or
// never.
func (l *load) write(id int) {
	dice := l.dice(fmt.Sprint("writer", id))
	var clients []client.Records[trivet.Template, *trivet.Template]
	for _, h := range l.site.heads {
		c, err := l.site.client(-1, h)
		if err != nil {
			l.history.trouble("writer", err)
			return
		}
		defer c.Close()
		clients = append(clients, client.Of[trivet.Template](c))
	}
	for n := 0; !l.over(); n++ {
		at := dice.IntN(len(clients))
		o := op{Client: id, Do: "write", Key: keyName(dice.IntN(keys)), Value: fmt.Sprintf("w%d.%d", id, n),
			Head: l.site.heads[at].port}
		switch d := dice.IntN(20); {
		case d < 6:
			o.Do, o.Value = "read", ""
		case d < 12:
			o.Do = "swap"
		case d < 13:
			o.Do, o.Key = "create", fmt.Sprintf("made-%d-%d", id, n)
		}
		l.do(clients[at], o)
		l.pause(time.Duration(10+dice.IntN(40)) * time.Millisecond)
	}
}

// do performs one operation and records its outcome.
func (l *load) do(records client.Records[trivet.Template, *trivet.Template], o op) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), opTimeout)
	defer cancel()
	swapAt := int64(0)
	if o.Do == "swap" { // what it wants to replace may be old: the compare decides
		was, err := records.Get(ctx, o.Key)
		if err != nil {
			return // nothing was tried
		}
		o.Was, swapAt = was.Labels["v"], was.Revision
	}
	var got *trivet.Template
	var err error
	o.Call = l.history.now()
	switch o.Do {
	case "read": // a patch of nothing is answered by what a quorum confirmed
		got, err = records.Patch(ctx, o.Key, []byte("{}"), 0)
	case "create":
		got, err = records.Create(ctx, keyRecord(o.Key, o.Value))
	case "swap": // of one revision: it may be repeated
		got, err = records.Patch(ctx, o.Key, valuePatch(o.Value), swapAt)
	default:
		got, err = records.Once().Patch(ctx, o.Key, valuePatch(o.Value), 0)
	}
	l.ended(&o, got, err)
}

// ended notes an operation.
func (l *load) ended(o *op, got *trivet.Template, err error) {
	o.Return = l.history.now()
	switch {
	case err == nil:
		o.Outcome = done
		if o.Do == "read" {
			o.Was = got.Labels["v"]
		} else if got.Labels["v"] == o.Value {
			o.Revision = got.Revision
		}
	case errors.Is(err, trivet.ErrUnavailable), errors.Is(err, trivet.ErrConflict), errors.Is(err, trivet.ErrNotFound):
		o.Outcome, o.Cause = refused, err.Error()
	default:
		o.Outcome, o.Cause = unknown, err.Error()
	}
	l.history.note(func(h *History) { h.Ops = append(h.Ops, *o) })
}

// pulse writes one key without pause, as a program with the SDK does: how long it gets no answer is the write gap.
func (l *load) pulse() {
	records := client.Of[trivet.Template](l.sdk)
	for n := 0; !l.over(); n++ {
		o := op{Client: -1, Do: "write", Key: pulseKey, Value: fmt.Sprint("p", n), Call: l.history.now()}
		got, err := records.Patch(l.ctx, pulseKey, valuePatch(o.Value), 0)
		l.ended(&o, got, err)
		l.pause(l.pulses)
	}
}

// finish reads every key, when all is over.
func (l *load) finish(ctx context.Context) error {
	list, _, err := client.Of[trivet.Template](l.sdk).List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	l.history.note(func(h *History) {
		for _, t := range list {
			h.Final[t.Name] = t.Labels["v"]
		}
	})
	written := []string{pulseKey}
	for i := range keys {
		written = append(written, keyName(i))
	}
	for _, t := range list {
		if strings.HasPrefix(t.Name, steadyPrefix) {
			written = append(written, t.Name)
		}
	}
	for _, key := range written {
		o := op{Client: final, Do: "read", Key: key, Call: l.history.now()}
		got, err := client.Of[trivet.Template](l.sdk).Patch(ctx, key, []byte("{}"), 0)
		if err != nil {
			return err
		}
		l.ended(&o, got, err)
	}
	return nil
}
