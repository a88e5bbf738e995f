package head_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A webhook that hangs, one that answers 500, and a mail server that is down each are a state with a next step, and an
// event, and delay no other notifier. When the mail server is up, the mail is delivered, and another event reports
// that.
func TestReceiversThatFail(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/hangs", func(http.ResponseWriter, *http.Request) { <-release })
	mux.HandleFunc("/fails", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/works", func(http.ResponseWriter, *http.Request) {})
	receiver := httptest.NewServer(mux)
	t.Cleanup(receiver.Close)
	t.Cleanup(func() { close(release) })
	h.MustTrivet("apply", "-f", "../../docs/examples/notifier.yaml", "-f", "../../docs/examples/notifier-mail.yaml")
	mailServer := net.JoinHostPort(testhead.NewAddress(), "2525")
	for _, name := range []string{"hangs", "fails", "works"} {
		h.Apply(fmt.Sprintf("kind: Notifier\nname: %s\nspec:\n  events: [Quarantined]\n  webhook: {url: %q, "+
			"secret: ops-webhook}\n", name, receiver.URL+"/"+name))
	}
	h.Apply(fmt.Sprintf("kind: Notifier\nname: mail\nspec:\n  events: [Quarantined]\n  mail: {server: %q, "+
		"from: trivet@example.com, to: [ops@example.com], insecure: true}\n", mailServer))
	notifiers := client.Of[trivet.Notifier](h.Client(testhead.Timeout))
	await := func(name, what string, ok func(trivet.NotifierStatus) bool) {
		t.Helper()
		h.Await(name+" "+what, func() error {
			n, err := notifiers.Get(t.Context(), name)
			if err == nil && !ok(n.Status) {
				err = fmt.Errorf("the status is %+v", n.Status)
			}
			return err
		})
	}
	for _, name := range []string{"hangs", "fails", "works", "mail"} {
		await(name, "has begun", func(st trivet.NotifierStatus) bool { return st.Head != "" })
	}
	h.MustTrivet("quarantine", "m1", "--reason", "smoke")
	await("works", "has delivered", func(st trivet.NotifierStatus) bool { return st.Delivered == 1 })
	for name, cause := range map[string]string{"hangs": "the receiver did not answer within 10s",
		"fails": "the receiver answered 500", "mail": "connection refused"} {
		await(name, "is failing", func(st trivet.NotifierStatus) bool {
			return st.State == trivet.NotifierFailing && strings.Contains(st.Reason, cause) && len(st.Pending) == 1 &&
				strings.Contains(st.Reason, "trivet notifier test "+name) && st.Failures >= 3
		})
		h.Await("an event reports that", func() error { return h.hasEvent("notifier/"+name, "NotifierFailing", cause) })
	}
	for _, args := range [][]string{{"get", "notifiers"}, {"describe", "notifier", "fails"}} {
		if out := h.MustTrivet(args...); !strings.Contains(out, "the receiver answered 500") {
			t.Error(out)
		}
	}
	if out := h.MustTrivet("describe", "notifier", "fails"); !strings.Contains(out, "! NotifierFailing") {
		t.Error(out)
	}

	mails := startMailServer(t, mailServer)
	if line, err := mails.ReadString('\n'); err != nil || !strings.Contains(line, "Quarantined: machine/m1") {
		t.Errorf("the mail is %s, %v", line, err)
	}
	await("mail", "has delivered", func(st trivet.NotifierStatus) bool {
		return st.State == trivet.NotifierActive && st.Delivered == 1 && st.Reason == ""
	})
	h.Await("an event reports that", func() error { return h.hasEvent("notifier/mail", "NotifierRecovered", "") })
}

// hasEvent returns an error unless there is an event.
func (h *head) hasEvent(subject, reason, message string) error {
	events, _, err := client.Of[trivet.Event](h.Client(testhead.Timeout)).List(h.Context(), client.ListOptions{})
	if err == nil && !slices.ContainsFunc(events, func(e *trivet.Event) bool {
		return e.Spec.Subject == subject && e.Spec.Reason == reason && strings.Contains(e.Spec.Message, message)
	}) {
		err = fmt.Errorf("none of %d events", len(events))
	}
	return err
}

// startMailServer starts a real mail server without TLS, and returns what it prints: a line for each mail.
func startMailServer(t *testing.T, address string) *bufio.Reader {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cmd := exec.Command("/usr/bin/python3", "../../internal/notify/testdata/smtpd.py", "plain", "", "")
	cmd.ExtraFiles = []*os.File{listener}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the mail server does not start: %q, %v; it needs the packages of scripts/deps", line, err)
	}
	return lines
}
