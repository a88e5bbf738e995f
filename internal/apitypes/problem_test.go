package apitypes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// Every sentinel reaches the client as the same sentinel.
func TestProblemKeepsTheSentinel(t *testing.T) {
	for err, status := range map[error]int{
		trivet.ErrNotFound: 404, trivet.ErrExists: 409, trivet.ErrInvalid: 422, trivet.ErrConflict: 409,
		trivet.ErrFenced:  409,
		trivet.ErrUnknown: 504, trivet.ErrUnavailable: 503, trivet.ErrCompacted: 410, trivet.ErrUnauthenticated: 401,
		trivet.ErrForbidden: 403, trivet.ErrTooLarge: 413, trivet.ErrClockSkew: 401,
	} {
		wrapped := &trivet.Error{Op: "create", Kind: "Machine", Name: "m1", Hint: "look",
			Err: fmt.Errorf("%w: cause", err)}
		got, p := cross(t, wrapped)
		if got != status || !errors.Is(p, err) || p.Error() != wrapped.Error() || p.Hint != "look" {
			t.Errorf("%v: status %d, %v, hint %q", err, got, p, p.Hint)
		}
		for other := range map[error]bool{trivet.ErrConflict: true, trivet.ErrExists: true, trivet.ErrFenced: true} {
			if errors.Is(p, other) != errors.Is(err, other) {
				t.Errorf("%v: errors.Is(%v) differs", err, other)
			}
		}
	}
}

func TestProblemKeepsTheFields(t *testing.T) {
	m := &trivet.Machine{Meta: trivet.Meta{Name: "M"}, Spec: trivet.MachineSpec{Arch: "vax"}}
	_, p := cross(t, &trivet.Error{Op: "create", Kind: "Machine", Name: "M", Err: m.Validate()})
	var got []string
	for _, f := range FieldErrors(p) {
		got = append(got, f.Field)
	}
	if diff := cmp.Diff([]string{"name", "spec.arch"}, got); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(p, trivet.ErrInvalid) {
		t.Error("is no ErrInvalid")
	}
}

// Internal errors are hidden from clients.
func TestProblemHidesWhatIsInternal(t *testing.T) {
	status, p := cross(t, errors.New("open /secret/path: broken"))
	if status != http.StatusInternalServerError || p.Message != "internal error" {
		t.Errorf("%d %q", status, p.Message)
	}
}

func cross(t *testing.T, err error) (int, *trivet.Problem) {
	t.Helper()
	status, p := NewProblem(err)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out trivet.Problem
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return status, &out
}
