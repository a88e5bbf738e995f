package notify

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/notify"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// receiver is an HTTP server that keeps the messages that it acknowledged.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	code     int // of its answers; 0: 200
	messages []notify.Message
	attempts int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempts++
		if r.code != 0 {
			w.WriteHeader(r.code)
			return
		}
		var m notify.Message
		if err := json.NewDecoder(req.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		r.messages = append(r.messages, m)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = code
}

// texts returns the texts of the messages that were acknowledged, in their order.
func (r *receiver) texts() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		all = append(all, m.Data.Message)
	}
	return all
}

const testName = "ops"

// site is a store with a notifier and a machine.
type site struct {
	*testing.T
	*state.Tables
	receiver *receiver
	seq      map[string]int64 // of the events, by machine
}

func newSite(t *testing.T, reasons ...string) *site {
	t.Helper()
	s := &site{t, storetest.New(t, state.New), newReceiver(t), map[string]int64{}}
	s.begin(reasons...)
	return s
}

// begin writes the records.
func (s *site) begin(reasons ...string) {
	s.Helper()
	key := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	s.update(func(tx *store.Tx) error {
		return errors.Join(
			s.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}),
			s.Secrets.In(tx).Put(&trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "hook"},
				Spec: trivet.SecretSpec{Data: map[string]string{"key": key}}}),
			s.Notifiers.In(tx).Put(&trivet.Notifier{Meta: trivet.Meta{Name: testName}, Spec: trivet.NotifierSpec{
				Events:  reasons,
				Webhook: &trivet.Webhook{URL: s.receiver.URL, Secret: "hook"}}}))
	})
}

func (s *site) update(do func(tx *store.Tx) error) {
	s.Helper()
	if _, err := s.Store.Update(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

// write writes events of a machine: one of each text.
func (s *site) write(machine, reason string, texts ...string) {
	s.Helper()
	for part := range slices.Chunk(texts, 32) {
		begin := s.seq[machine]
		s.update(func(tx *store.Tx) error {
			s.seq[machine] = begin
			var errs []error
			for _, text := range part {
				s.seq[machine]++
				errs = append(errs, s.Events.In(tx).Put(&trivet.Event{
					Meta: trivet.Meta{Name: trivet.EventName("uid-"+machine, s.seq[machine])},
					Spec: trivet.EventSpec{Subject: "machine/" + machine, SubjectUID: "uid-" + machine,
						Seq: s.seq[machine], Time: time.Now(), Reason: reason, Message: text}}))
			}
			return errors.Join(errs...)
		})
	}
}

// controller returns the controller of a head that sees these others as working.
func (s *site) controller(head string, others ...string) *Controller {
	live := func(name string) bool { return slices.Contains(others, name) }
	c := New(Config{Tables: s.Tables, Head: head, Cluster: "c1", Rank: func(string) int { return 0 }, Live: live,
		Others: func() map[string]string {
			all := map[string]string{}
			for _, name := range others {
				all[name] = ""
			}
			return all
		},
		Unseal: func(s *trivet.Secret, key string) (string, error) { return s.Spec.Data[key], nil }})
	c.lostTime = 0
	return c
}

func (s *site) status() trivet.NotifierStatus {
	s.Helper()
	n, err := s.Notifiers.Get(testName)
	if err != nil {
		s.Fatal(err)
	}
	return n.Status
}

// until runs rounds of a controller, each at once, until something is so. It waits for no backoff.
func (s *site) until(c *Controller, what string, ok func() bool) {
	s.Helper()
	for range 200 {
		if ok() {
			return
		}
		if _, err := c.Reconcile(s.Context(), testName); err != nil {
			s.Fatalf("%s: %v", what, err)
		}
		if w := c.works[testName]; w != nil {
			w.retry, w.saved = time.Time{}, time.Time{}
		}
	}
	s.Fatalf("never: %s; the status is %+v", what, s.status())
}

// delivered waits until the status has a number of deliveries and nothing is pending.
func (s *site) delivered(c *Controller, n int) {
	s.Helper()
	s.until(c, fmt.Sprint(n, " events are delivered"), func() bool {
		st := s.status()
		return st.Delivered == int64(n) && len(st.Pending) == 0
	})
}

// began waits until a controller has begun, so that what happens next is sent.
func (s *site) began(c *Controller) {
	s.Helper()
	s.until(c, c.Head+" has begun", func() bool { return s.status().Head == c.Head })
}

// ownEvents returns the reasons of the events of the notifier, and their messages.
func (s *site) ownEvents() (reasons []string, messages string) {
	s.Helper()
	all, err := s.Events.Under(s.Context(), "notifier."+testName+".", "", 0)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range all {
		reasons, messages = append(reasons, e.Spec.Reason), messages+e.Spec.Message+"\n"
	}
	return reasons, messages
}

func numbered(prefix string, n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(prefix, i))
	}
	return texts
}

// The controller needs exactly what it declares: it reads the machines, the addresses and the provision of an event,
// and writes an event about itself.
func TestDeclaration(t *testing.T) {
	s := newSite(t)
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		s.receiver.answer(0)
		machine, run := fmt.Sprint("m", n), trivet.Meta{Project: "default", Name: fmt.Sprint("w", n)}
		s.update(func(tx *store.Tx) error {
			notifier, err := s.Notifiers.In(tx).Get(testName)
			if err != nil {
				return err
			}
			notifier.Status = trivet.NotifierStatus{}
			return errors.Join(s.Notifiers.In(tx).Put(notifier),
				s.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: machine},
					Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", n)}}}}),
				s.Provisions.In(tx).Put(&trivet.Provision{Meta: run, Spec: trivet.ProvisionSpec{Template: "t",
					Machine: machine}}),
				s.Workflows.In(tx).Put(&trivet.Workflow{Meta: run, Spec: trivet.WorkflowSpec{Machine: machine,
					Provision: run.Name}}))
		})
		c := s.controller("head0")
		c.Tables = s.Tables.Within(scope)
		if _, err := c.Reconcile(ctx, testName); err != nil {
			return err
		}
		for _, code := range []int{0, http.StatusGone} {
			s.receiver.answer(code)
			s.update(func(tx *store.Tx) error {
				s.seq[machine]++
				return s.Events.In(tx).Put(&trivet.Event{
					Meta: trivet.Meta{Name: trivet.EventName(fmt.Sprint("u", n), s.seq[machine])},
					Spec: trivet.EventSpec{Subject: "machine/" + machine, SubjectUID: "u", Seq: s.seq[machine],
						Reason: trivet.ReasonFailed, Workflow: run.Name}})
			})
			if _, err := c.Reconcile(ctx, testName); err != nil {
				return err
			}
		}
		if st := s.status(); st.State != trivet.NotifierDisabled {
			return fmt.Errorf("the status is %+v", st)
		}
		return nil
	})
}

// Every event that is wanted is sent once and in order, whatever happens beside them, and those before the notifier
// began are not. The status is not written for each event, and not at all when nothing happens.
func TestEveryEventOnceInOrder(t *testing.T) {
	s := newSite(t)
	s.write("m1", trivet.ReasonFailed, "before")
	c := s.controller("head0")
	if err := func() error { _, err := c.Reconcile(t.Context(), testName); return err }(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, text := range numbered("e", 130) {
		machine := fmt.Sprint("m", 1+i%3)
		s.write(machine, trivet.ReasonActionDone, "not wanted")
		s.write(machine, trivet.ReasonFailed, text)
		want = append(want, text)
	}
	first := s.Store.Revision()
	s.delivered(c, 131)
	got := s.receiver.texts()
	if got[0] != "before" || !slices.Equal(got[1:], want) {
		t.Errorf("received %q", got)
	}
	ids := map[string]bool{}
	for _, m := range s.receiver.messages {
		ids[m.ID] = true
	}
	if len(ids) != 131 {
		t.Errorf("131 events have %d IDs", len(ids))
	}
	if writes := s.Store.Revision() - first; writes > 5 {
		t.Errorf("131 events took %d writes", writes)
	}
	rest := s.Store.Revision()
	for range 20 {
		if _, err := c.Reconcile(t.Context(), testName); err != nil {
			t.Fatal(err)
		}
	}
	if now := s.Store.Revision(); now != rest {
		t.Errorf("%d writes at rest", now-rest)
	}
}

// Where nothing is wanted, the cursor is written now and then, so that a head that starts need not read far back.
func TestCursorFollows(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	s.began(c)
	before := s.status().Cursor
	for i := range cursorLag + 2 {
		s.write("m1", trivet.ReasonActionDone, fmt.Sprint("not wanted ", i))
	}
	s.until(c, "the cursor is written", func() bool { return s.status().Cursor > before+cursorLag })
}

// Where the feed does not reach back to the cursor, the notifier goes on from now, and an event reports it.
func TestCursorThatIsTooOld(t *testing.T) {
	s := newSite(t)
	member := storetest.Member(t)
	s.Tables = storetest.On(t, member, store.Options{}, state.New)
	s.begin()
	c := s.controller("head0")
	s.began(c)
	s.write("m1", trivet.ReasonFailed, numbered("lost", 10)...)
	if err := member.Compact(t.Context(), s.Store.Revision()); err != nil {
		t.Fatal(err)
	}
	s.Tables = storetest.On(t, member, store.Options{}, state.New) // a head that starts
	c = s.controller("head0")
	s.until(c, "an event reports it", func() bool { return s.status().Events == 1 })
	s.write("m1", trivet.ReasonFailed, "after")
	s.delivered(c, 1)
	if got := s.receiver.texts(); !slices.Equal(got, []string{"after"}) {
		t.Errorf("received %q", got)
	}
	if reasons, messages := s.ownEvents(); !slices.Equal(reasons, []string{trivet.ReasonNotificationsDropped}) ||
		!strings.Contains(messages, "were not examined") {
		t.Errorf("its events: %q\n%s", reasons, messages)
	}
}

// A receiver that fails keeps its events waiting. The record and an event say so, and another head tries; when it
// works again, all are delivered in order.
func TestReceiverThatFails(t *testing.T) {
	s := newSite(t)
	c0, c1 := s.controller("head0", "head1"), s.controller("head1", "head0")
	s.began(c0)
	s.receiver.answer(http.StatusInternalServerError)
	texts := numbered("e", 7)
	s.write("m1", trivet.ReasonFailed, texts...)
	s.until(c0, "another head is to try", func() bool { return s.status().Head == "head1" })
	st := s.status()
	if st.State != trivet.NotifierFailing || st.Failures != attempts || len(st.Pending) != 7 || st.Next.IsZero() ||
		!strings.Contains(st.Reason, "head0: the receiver answered 500") ||
		!strings.Contains(st.Reason, "trivet notifier test "+testName) {
		t.Errorf("the status is %+v", st)
	}
	if s.receiver.attempts != attempts {
		t.Errorf("%d attempts, want %d", s.receiver.attempts, attempts)
	}
	if _, err := c0.Reconcile(t.Context(), testName); err != nil || s.receiver.attempts != attempts {
		t.Errorf("the first head still tries: %v", err)
	}
	s.until(c1, "the first head is to try again", func() bool { return s.status().Head == "head0" })
	s.receiver.answer(0)
	s.delivered(c0, 7)
	if got := s.receiver.texts(); !slices.Equal(got, texts) {
		t.Errorf("received %q", got)
	}
	if st := s.status(); st.State != trivet.NotifierActive || st.Reason != "" || st.Failures != 0 || st.Last.IsZero() {
		t.Errorf("the status is %+v", st)
	}
	reasons, messages := s.ownEvents()
	if !slices.Equal(reasons, []string{trivet.ReasonNotifierFailing, trivet.ReasonNotifierRecovered}) ||
		!strings.Contains(messages, "3 attempts failed; head0: the receiver answered 500") {
		t.Errorf("its events: %q\n%s", reasons, messages)
	}
}

// A failure that lasts for one attempt is no event.
func TestOneFailure(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	s.began(c)
	s.receiver.answer(http.StatusBadGateway)
	s.write("m1", trivet.ReasonFailed, "e")
	s.until(c, "an attempt failed", func() bool { return s.status().Failures == 1 })
	after, err := c.Reconcile(t.Context(), testName)
	if err != nil || after <= 0 || after > interval {
		t.Errorf("the next round is after %s, %v", after, err)
	}
	s.receiver.answer(0)
	s.delivered(c, 1)
	if reasons, _ := s.ownEvents(); len(reasons) > 0 {
		t.Errorf("events %q", reasons)
	}
}

// What fails is tried again after a delay, which grows up to a bound, and a receiver may ask for a longer one.
func TestBackoff(t *testing.T) {
	for n := 1; n < 100; n++ {
		full := min(minBackoff<<min(n-1, 30), maxBackoff)
		if d := backoff(n); d < full/2 || d > full {
			t.Errorf("after %d failures %s, want %s to %s", n, d, full/2, full)
		}
	}
	s := newSite(t)
	n, err := s.Notifiers.Get(testName)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	w := newWork(s.controller("head0"), n)
	w.failed(&notify.RetryError{Err: errors.New("busy"), After: time.Hour}, now)
	if d := w.retry.Sub(now); d != time.Hour {
		t.Errorf("the receiver asked for an hour: %s", d)
	}
}

// Events that happen one after the other are one mail, and the next one is a minute later.
func TestMailsAreFew(t *testing.T) {
	s := newSite(t)
	n, err := s.Notifiers.Get(testName)
	if err != nil {
		t.Fatal(err)
	}
	n.Spec.Webhook, n.Spec.Mail = nil, &trivet.Mail{Server: "127.0.0.1:1"}
	w := newWork(s.controller("head0"), n)
	s.write("m1", trivet.ReasonFailed, "first")
	if err := w.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := w.retry
	if wait := time.Until(first); len(w.status.Pending) != 1 || wait <= mailWindow/2 || wait > mailWindow {
		t.Errorf("%d are pending, and are sent in %s", len(w.status.Pending), wait)
	}
	s.write("m1", trivet.ReasonFailed, "second")
	if err := w.take(t.Context()); err != nil || len(w.status.Pending) != 2 || !w.retry.Equal(first) {
		t.Errorf("%d are pending, and are sent %s later, %v", len(w.status.Pending), w.retry.Sub(first), err)
	}
	now := time.Now()
	w.succeeded(now)
	w.status.Pending = nil
	s.write("m1", trivet.ReasonFailed, "third")
	if err := w.take(t.Context()); err != nil || w.retry.Sub(now) != mailInterval {
		t.Errorf("the next mail is %s later, %v", w.retry.Sub(now), err)
	}
}

// A cause of any length, such as the names in a certificate, is written.
func TestLongCause(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	s.began(c)
	w := c.works[testName]
	for range attempts {
		w.failed(errors.New(strings.Repeat("x", 1<<20)), time.Now())
	}
	if err := w.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := s.status(); len(st.Reason) > 3000 || !strings.HasSuffix(st.Reason, "notifier test "+testName) {
		t.Errorf("the reason has %d bytes", len(st.Reason))
	}
}

// Beyond the bound the oldest events are dropped, and the record and an event say how many.
func TestTooManyPending(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	s.began(c)
	s.receiver.answer(http.StatusInternalServerError)
	var all []string
	for m := range 6 {
		texts := numbered(fmt.Sprint("m", m, "-"), 200)
		s.write(fmt.Sprint("m", m), trivet.ReasonFailed, texts...)
		all = append(all, texts...)
	}
	s.until(c, "events are dropped", func() bool { return s.status().Dropped == 200 })
	s.receiver.answer(0)
	s.delivered(c, 1000)
	if got := s.receiver.texts(); !slices.Equal(got, all[200:]) {
		t.Errorf("received %d, from %s to %s", len(got), got[0], got[len(got)-1])
	}
	if st := s.status(); st.Dropped != 200 {
		t.Errorf("dropped %d", st.Dropped)
	}
	if reasons, messages := s.ownEvents(); !slices.Contains(reasons, trivet.ReasonNotificationsDropped) ||
		!strings.Contains(messages, "200 events will not be delivered: more than 1000 were pending") {
		t.Errorf("its events: %q\n%s", reasons, messages)
	}
}

// An event that was written over while it waited counts as dropped; the later one of its name is another one.
func TestEventWrittenOver(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	s.began(c)
	s.receiver.answer(http.StatusInternalServerError)
	s.write("m1", trivet.ReasonFailed, "first", "second")
	s.until(c, "both are pending", func() bool { return len(s.status().Pending) == 2 })
	s.write("m1", trivet.ReasonActionDone, numbered("x", trivet.EventsPerSubject-2)...)
	s.write("m1", trivet.ReasonFailed, "over the first")
	s.receiver.answer(0)
	s.delivered(c, 2)
	if got := s.receiver.texts(); !slices.Equal(got, []string{"second", "over the first"}) {
		t.Errorf("received %q", got)
	}
	if st := s.status(); st.Dropped != 1 {
		t.Errorf("dropped %d, want 1", st.Dropped)
	}
}

// A receiver that wants no more is left alone until the spec changes; then it gets what happens after that.
func TestReceiverThatIsGone(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	s.began(c)
	s.receiver.answer(http.StatusGone)
	s.write("m1", trivet.ReasonFailed, "lost", "lost, too")
	s.until(c, "it is disabled", func() bool { return s.status().State == trivet.NotifierDisabled })
	s.write("m1", trivet.ReasonFailed, "meanwhile")
	for range 5 {
		if _, err := c.Reconcile(t.Context(), testName); err != nil {
			t.Fatal(err)
		}
	}
	st := s.status()
	if s.receiver.attempts != 1 || st.Dropped != 2 || len(st.Pending) > 0 || !strings.Contains(st.Reason, "410") {
		t.Errorf("%d attempts, status %+v", s.receiver.attempts, st)
	}
	if reasons, _ := s.ownEvents(); !slices.Contains(reasons, trivet.ReasonNotifierDisabled) {
		t.Errorf("its events: %q", reasons)
	}
	s.receiver.answer(0)
	s.update(func(tx *store.Tx) error {
		n, err := s.Notifiers.In(tx).Get(testName)
		if err != nil {
			return err
		}
		n.Spec.Webhook.URL += "/new"
		return s.Notifiers.In(tx).Put(n)
	})
	s.until(c, "it is enabled", func() bool { return s.status().State == trivet.NotifierActive })
	s.write("m1", trivet.ReasonFailed, "after")
	s.delivered(c, 1)
	if got := s.receiver.texts(); !slices.Equal(got, []string{"after"}) {
		t.Errorf("received %q", got)
	}
}

// Another head continues where a lost one was: what it had not written is sent again, with the same ID, and nothing is
// left out. Two that deliver at once agree by the record.
func TestAnotherHeadContinues(t *testing.T) {
	s := newSite(t)
	c0, c1 := s.controller("head0"), s.controller("head1")
	s.began(c0)
	texts := numbered("e", 60)
	s.write("m1", trivet.ReasonFailed, texts...)
	c0.works[testName].saved = time.Now() // it will write in a second
	if _, err := c0.Reconcile(t.Context(), testName); err != nil || len(s.receiver.texts()) == 0 ||
		s.status().Delivered != 0 {
		t.Fatalf("received %q, status %+v, %v", s.receiver.texts(), s.status(), err)
	}
	first := c0.works[testName]
	s.delivered(c1, 60)
	if err := first.save(t.Context()); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("the first head wrote over what the other one has delivered: %v", err)
	}
	got := map[string]string{}
	var order []string
	for _, m := range s.receiver.messages {
		if id, again := got[m.Data.Message]; again && id != m.ID {
			t.Errorf("%s has the IDs %s and %s", m.Data.Message, id, m.ID)
		} else if !again {
			order = append(order, m.Data.Message)
		}
		got[m.Data.Message] = m.ID
	}
	if !slices.Equal(order, texts) {
		t.Errorf("received %q", order)
	}
	s.began(c0) // to it, head1 is lost
	s.write("m1", trivet.ReasonFailed, "last")
	s.delivered(c0, 61)
}

// A head that is working keeps the notifiers that it delivers for, whichever ranks first.
func TestWorkingHeadKeepsIt(t *testing.T) {
	s := newSite(t)
	c0, c1 := s.controller("head0"), s.controller("head1", "head0")
	s.began(c0)
	if after, err := c1.Reconcile(t.Context(), testName); err != nil || after != interval || s.status().Head != "head0" {
		t.Errorf("again after %s, %v; the head is %s", after, err, s.status().Head)
	}
	c2 := s.controller("head2")
	c2.lostTime = time.Hour // it does not know yet who is working
	if _, err := c2.Reconcile(t.Context(), testName); err != nil || s.status().Head != "head0" {
		t.Errorf("%v; the head is %s", err, s.status().Head)
	}
}

// What a notifier without a filter sends: a success only after another machine had failed; never about itself.
func TestWanted(t *testing.T) {
	s := newSite(t)
	c := s.controller("head0")
	run := trivet.Meta{Project: "default", Name: "w1"}
	provision := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p1"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: "m2"}, Status: trivet.ProvisionStatus{Machine: "m2"}}
	s.update(func(tx *store.Tx) error {
		return errors.Join(
			s.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m1"}, Spec: trivet.MachineSpec{Rack: "r1",
				NICs: []trivet.NIC{{MAC: "52:54:00:00:00:01"}},
				BMC:  &trivet.BMC{Protocol: "ipmi", Address: "10.9.0.1", Secret: "bmc"}}}),
			s.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m2"}, Spec: trivet.MachineSpec{
				NICs: []trivet.NIC{{MAC: "52:54:00:00:00:02"}}}}),
			s.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: "10.0.0.2"}, Spec: trivet.AddressSpec{
				MAC: "52:54:00:00:00:02", Network: "lan", Machine: "m2"}}),
			s.Provisions.In(tx).Put(provision),
			s.Workflows.In(tx).Put(&trivet.Workflow{Meta: run, Spec: trivet.WorkflowSpec{Machine: "m2",
				Provision: "p1"}}))
	})
	event := func(reason string) *trivet.Event {
		return &trivet.Event{Meta: trivet.Meta{UID: "U", Revision: 7}, Spec: trivet.EventSpec{Subject: "machine/m2",
			Reason: reason, Workflow: "w1"}}
	}
	n, err := s.Notifiers.Get(testName)
	if err != nil {
		t.Fatal(err)
	}
	own := event(trivet.ReasonNotifierFailing)
	own.Spec.Subject = "notifier/" + testName
	other := event(trivet.ReasonNotifierFailing)
	other.Spec.Subject = "notifier/other"
	for _, tc := range []struct {
		e    *trivet.Event
		want bool
	}{{event(trivet.ReasonFailed), true}, {event(trivet.ReasonSwitched), true}, {event(trivet.ReasonGranted), false},
		{event(trivet.ReasonSucceeded), false}, {own, false}, {other, true}} {
		if got := c.wants(n, tc.e); got != tc.want {
			t.Errorf("%s of %s: %t", tc.e.Spec.Reason, tc.e.Spec.Subject, got)
		}
	}
	s.update(func(tx *store.Tx) error {
		p, err := s.Provisions.In(tx).Get("default/p1")
		if err != nil {
			return err
		}
		p.Status.Spent = []trivet.SpentMachine{{FormerMachine: trivet.FormerMachine{Machine: "m1"}, Workflow: "w0"}}
		return s.Provisions.In(tx).Put(p)
	})
	if !c.wants(n, event(trivet.ReasonSucceeded)) {
		t.Error("the success of the second machine is not sent")
	}
	// the message has the old machine and the new one, with their addresses and where their consoles are
	m := c.message(event(trivet.ReasonSucceeded))
	if p := m.Data.Provision; m.ID != "U-7" || m.Data.Hint != "trivet why m2" || p == nil || p.Name != "p1" ||
		len(p.Failed) != 1 || p.Failed[0].Name != "m1" || p.Failed[0].BMC != "10.9.0.1" || p.Failed[0].Rack != "r1" ||
		p.Machine == nil || p.Machine.Name != "m2" || !slices.Equal(p.Machine.Addresses, []string{"10.0.0.2"}) {
		text, _ := json.Marshal(m)
		t.Errorf("%s", text)
	}
	n.Spec.Events = []string{trivet.ReasonGranted}
	if c.wants(n, event(trivet.ReasonFailed)) || !c.wants(n, event(trivet.ReasonGranted)) {
		t.Error("the filter of the spec is not what is sent")
	}
}
