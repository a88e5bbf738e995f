package heads

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	sdk "github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

// Token is what an operator carries from a head to a new one: how to know the cluster, and the right to join it once, in a
// role.
type Token struct {
	Pin    string      // of the cluster's CA
	ID     string      // of the token's record
	Secret auth.Secret // the token itself
	Role   string
}

// ParseToken reads what [apitypes.JoinText] wrote.
func ParseToken(text string) (t Token, err error) {
	t.Role = trivet.RoleVoter
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutSuffix(text, "."+trivet.RoleWitness); ok {
		text, t.Role = rest, trivet.RoleWitness
	}
	pin, secret, ok := strings.Cut(text, ".")
	t.Pin, t.Secret = pin, auth.Secret(secret)
	if ok && sdk.ValidatePin(pin) == nil {
		t.ID, err = auth.ParseToken(secret)
	}
	if t.ID == "" || err != nil {
		what := "it is not of the form sha256:<pin>.trivet_<id>_<secret>"
		if text == "" {
			what = "there is none"
		}
		return Token{}, &trivet.Error{Op: "read the join token", Err: fmt.Errorf("%w: %s", trivet.ErrInvalid, what),
			Hint: "get one on a head of the cluster by 'trivet head token', and give it by --token or TRIVET_JOIN_TOKEN"}
	}
	return t, nil
}

// remindEvery is how often a head that waits for its place says that it still does.
const remindEvery = 30 * time.Second

// hintReach is for who asks where nobody is.
const hintReach = "check --join; the token is still good"

// Join asks heads, in turn, for a place until one gives it, ctx ends, or one refuses for good.
func Join(ctx context.Context, urls []string, t Token, ask Ask, log *slog.Logger) (*Place, error) {
	trust, err := sdk.TLSConfig(t.Pin)
	if err != nil {
		return nil, err
	}
	urls = slices.Clone(urls)
	for i, u := range urls {
		if urls[i], err = headURL(u); err != nil {
			return nil, err
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	ask.Token, ask.Protocol = t.Secret.Reveal(), Protocol
	last, at := error(nil), time.Now()
	for {
		place, err := askAll(ctx, client, urls, ask)
		switch {
		case err == nil || !again(err):
			return place, err
		case ctx.Err() != nil: // err may say no more than that
			return nil, reached(cmp.Or(last, err))
		case last == nil || last.Error() != err.Error():
			log.Info("no place yet; asking again", "error", err)
		}
		if last = err; time.Since(at) >= remindEvery {
			at = time.Now()
			log.Warn("still no place; asking again", "error", reached(err))
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// reached adds what to do about a head that cannot be reached. One that answers says that itself.
func reached(err error) error {
	if said := (*trivet.Problem)(nil); errors.As(err, &said) {
		return err
	}
	return &trivet.Error{Op: "ask for a place", Err: err, Hint: hintReach}
}

// askAll asks each head once, until one gives a place or refuses for good.
func askAll(ctx context.Context, client *http.Client, urls []string, ask Ask) (*Place, error) {
	var last error
	for _, u := range urls {
		var place Place
		ask.Time = time.Now()
		err := Call(ctx, client, u+Prefix+"join", ask, &place)
		if err == nil {
			return &place, nil
		}
		var said *trivet.Problem
		if errors.Is(err, trivet.ErrUnauthenticated) && !errors.As(err, &said) { // by its certificate
			err = &trivet.Error{Op: "ask for a place", Err: err, Hint: "give a token of the cluster that is at this URL, or the URL of the token's cluster"}
		}
		if noTLS := (tls.RecordHeaderError{}); errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &noTLS) {
			err = &trivet.Error{Op: "ask for a place", Err: fmt.Errorf("%w: what answers there does not speak TLS", trivet.ErrInvalid),
				Hint: "give the port of a head's API, which is 7480 unless its --api says otherwise; the token is still good"}
		}
		if errors.As(err, &said) && errors.Is(err, trivet.ErrNotFound) && strings.Contains(said.Message, Prefix) { // it has no such door
			err = &trivet.Error{Op: "ask for a place", Err: fmt.Errorf("%w: the head there does not let heads join, being of version 0.1", trivet.ErrInvalid),
				Hint: "upgrade it first: stop it, and start this version on its data folder; the token is still good"}
		}
		if last = fmt.Errorf("%s: %w", u, err); !again(err) {
			break
		}
	}
	return nil, last
}

func again(err error) bool {
	return errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrConflict) || errors.Is(err, trivet.ErrUnknown)
}

// headURL takes a URL or host:port.
func headURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || validatePeer(text) != nil {
		return "", &trivet.FieldError{Field: "--join", Problem: fmt.Sprintf("%.300q is not https://HOST:PORT, the API of a head", text)}
	}
	return "https://" + u.Host, nil
}

// Call sends JSON to a head and reads its answer. What cannot be reached is ErrUnavailable.
func Call(ctx context.Context, client *http.Client, url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, trivet.ErrUnauthenticated):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if resp.StatusCode != http.StatusOK {
		return sdk.ParseProblem(resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%w: an answer that is none: %w", trivet.ErrUnavailable, err)
	}
	return nil
}
