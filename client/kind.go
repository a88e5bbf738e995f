package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/trivet-project/trivet"
)

// Kind reads and writes the records of one kind. [Of] returns the same for the kind's own type.
type Kind struct {
	Info    trivet.KindInfo
	c       *Client
	project string // empty: all projects
	dryRun  bool
	once    bool
	force   bool
}

// Kind returns the records of a kind; of one that belongs to projects, those of the default project.
func (c *Client) Kind(info trivet.KindInfo) Kind {
	return Kind{Info: info, c: c, project: trivet.DefaultProject}
}

// In returns the records of another project. For a kind of the cluster it is without effect.
func (k Kind) In(project string) Kind {
	k.project = project
	return k
}

// AllProjects returns the records of all projects, which can only be listed and watched.
func (k Kind) AllProjects() Kind { return k.In("") }

// Client returns the client of these records.
func (k Kind) Client() *Client { return k.c }

// DryRun returns the same records, whose writes are only checked and not stored.
func (k Kind) DryRun(on bool) Kind {
	k.dryRun = on
	return k
}

// Once returns the same records, but a write (create, change or delete) whose response is lost fails with
// ErrUnknown, and is not retried. A retry reaches the same result in the end, but overwrites what another
// client wrote in between.
func (k Kind) Once(on bool) Kind {
	k.once = on
	return k
}

// Force returns the same records, whose deletion leaves references that prevent it without a target, and whose
// application overwrites fields that others have changed.
func (k Kind) Force(on bool) Kind {
	k.force = on
	return k
}

// ListOptions select records. Both selectors are comma-separated lists of "key=value" and "key!=value".
type ListOptions struct {
	Labels string // "rack=r1,env!=test"
	Fields string // over the record's JSON: "status.state=available,spec.rack=r1"
	// Page is the number of records of one request; 0 means the head's default.
	Page int
}

func (k Kind) path(name string) string {
	path := "/v1/"
	if k.Info.Scope == trivet.ScopeProject && k.project != "" {
		path += "projects/" + url.PathEscape(k.project) + "/"
	}
	if path += k.Info.Plural; name == "" {
		return path
	}
	return path + "/" + url.PathEscape(name)
}

func (k Kind) decode(data []byte) (trivet.Record, error) {
	r := k.Info.New()
	if err := json.Unmarshal(data, r); err != nil {
		return nil, &trivet.Error{Op: "read", Kind: k.Info.Kind, Err: err}
	}
	return r, nil
}

// Get reads one record.
func (k Kind) Get(ctx context.Context, name string) (trivet.Record, error) {
	data, err := k.Raw(ctx, name)
	if err != nil {
		return nil, err
	}
	return k.decode(data)
}

// Raw reads one record as the head sends it, with properties that this client may not know.
func (k Kind) Raw(ctx context.Context, name string) (json.RawMessage, error) {
	if err := trivet.ValidateName(name); err != nil {
		return nil, err
	}
	var data json.RawMessage
	_, err := k.c.json(ctx, call{method: http.MethodGet, path: k.path(name)}, &data)
	return data, err
}

// List reads all records that match the options, by project and name, in as many pages as needed. A watch from
// revision misses nothing that is not in the list.
func (k Kind) List(ctx context.Context, o ListOptions) (records []trivet.Record, revision int64, err error) {
	raw, revision, err := k.RawList(ctx, o)
	for _, data := range raw {
		r, err := k.decode(data)
		if err != nil {
			return nil, 0, err
		}
		records = append(records, r)
	}
	return records, revision, err
}

// RawList is List with the records as the head sends them.
func (k Kind) RawList(ctx context.Context, o ListOptions) (raw []json.RawMessage, revision int64, err error) {
	q := selection(o.Labels, o.Fields)
	if o.Page > 0 {
		q.Set("limit", strconv.Itoa(o.Page))
	}
	for {
		var page trivet.List
		if _, err := k.c.json(ctx, call{method: http.MethodGet, path: k.path(""), query: q}, &page); err != nil {
			return nil, 0, err
		}
		raw, revision = append(raw, page.Items...), page.Revision
		if page.Continue == "" {
			return raw, revision, nil
		}
		q.Set("continue", page.Continue)
	}
}

// Any reports whether a record matches the options. It reads one page of one record.
func (k Kind) Any(ctx context.Context, o ListOptions) (bool, error) {
	q := selection(o.Labels, o.Fields)
	q.Set("limit", "1")
	var page trivet.List
	_, err := k.c.json(ctx, call{method: http.MethodGet, path: k.path(""), query: q}, &page)
	return len(page.Items) > 0 || page.Continue != "", err
}

func selection(labels, fields string) url.Values {
	q := url.Values{}
	if labels != "" {
		q.Set("labels", labels)
	}
	if fields != "" {
		q.Set("fields", fields)
	}
	return q
}

// Create creates a record and returns it as stored. It fails with ErrExists if another client
// created one of that name.
func (k Kind) Create(ctx context.Context, r trivet.Record) (trivet.Record, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w: %w", k.Info.Kind, trivet.ErrInvalid, err)
	}
	return k.CreateRaw(ctx, r.Header().Name, body)
}

// CreateRaw is Create with the record's JSON.
func (k Kind) CreateRaw(ctx context.Context, name string, body []byte) (trivet.Record, error) {
	uid := NewUID()
	cl := call{method: http.MethodPost, path: k.path(""), query: k.query(), body: body, once: k.once,
		header: http.Header{trivet.HeaderIdempotencyKey: {uid}}}
	var data json.RawMessage
	inDoubt, err := k.c.json(ctx, cl, &data)
	if err == nil {
		return k.decode(data)
	}
	if inDoubt && errors.Is(err, trivet.ErrExists) {
		if there, getErr := k.Get(ctx, name); getErr == nil && there.Header().UID == uid {
			return there, nil // an earlier attempt created it and its response was lost
		}
	}
	return nil, err
}

// NewUID returns a new UID for a record.
func NewUID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Update replaces labels and spec of a record: status is ignored, and if the record has a
// generation that is no longer the stored one, it fails with ErrConflict. Programs use Patch or Modify.
func (k Kind) Update(ctx context.Context, r trivet.Record) (trivet.Record, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("update %s: %w: %w", k.Info.Kind, trivet.ErrInvalid, err)
	}
	return k.UpdateRaw(ctx, r.Header().Name, body)
}

// UpdateRaw is Update with the record's JSON.
func (k Kind) UpdateRaw(ctx context.Context, name string, body []byte) (trivet.Record, error) {
	return k.write(ctx, name, call{method: http.MethodPut, body: body})
}

// Patch changes a record by a merge patch (RFC 7386). If revision is not 0 the record must still have it:
// ErrConflict. See Once for the effect on changes of others if it is 0.
func (k Kind) Patch(ctx context.Context, name string, patch []byte, revision int64) (trivet.Record, error) {
	cl := call{method: http.MethodPatch, body: patch, header: http.Header{"Content-Type": {trivet.MediaMergePatch}}}
	if revision != 0 {
		cl.header.Set("If-Match", strconv.FormatInt(revision, 10))
	}
	return k.write(ctx, name, cl)
}

// ApplyOptions say for whom a record is applied: see [trivet.MediaApplyPatch].
type ApplyOptions struct {
	Manager string // empty: "apply"
	Former  string // a manager whose fields it takes over
}

// Apply creates a record, or changes it as far as the manager applied it before. It takes the record's JSON as a person
// wrote it, and returns the record as stored. A field that others have changed is an ErrConflict, which names it,
// unless the kind is forced.
func (k Kind) Apply(ctx context.Context, name string, o ApplyOptions, body []byte) (trivet.Record, error) {
	cl := call{method: http.MethodPatch, body: body, query: url.Values{},
		header: http.Header{"Content-Type": {trivet.MediaApplyPatch}}}
	for key, value := range map[string]string{"manager": o.Manager, "former": o.Former} {
		if value != "" {
			cl.query.Set(key, value)
		}
	}
	return k.write(ctx, name, cl)
}

func (k Kind) write(ctx context.Context, name string, cl call) (trivet.Record, error) {
	query := k.query()
	maps.Copy(query, cl.query)
	cl.path, cl.query, cl.once = k.path(name), query, k.once
	var data json.RawMessage
	inDoubt, err := k.c.json(ctx, cl, &data)
	if inDoubt && errors.Is(err, trivet.ErrConflict) {
		return nil, &trivet.Error{Op: "update", Kind: k.Info.Kind, Name: name, Hint: "read it again",
			Err: fmt.Errorf("%w: an earlier attempt, whose response was lost, may have made the change: %v",
				trivet.ErrUnknown, err)}
	}
	if err != nil {
		return nil, err
	}
	return k.decode(data)
}

func (k Kind) query() url.Values {
	q := url.Values{}
	if k.dryRun {
		q.Set("dryRun", "1")
	}
	if k.force {
		q.Set("force", "1")
	}
	return q
}

// Delete deletes a record. It fails with ErrConflict while others refer to it.
func (k Kind) Delete(ctx context.Context, name string) error {
	_, err := k.Remove(ctx, name)
	return err
}

// Remove is Delete, and returns the references that a forced deletion left without a target.
func (k Kind) Remove(ctx context.Context, name string) (*trivet.Deletion, error) {
	if err := trivet.ValidateName(name); err != nil {
		return nil, err
	}
	result := &trivet.Deletion{}
	cl := call{method: http.MethodDelete, path: k.path(name), query: k.query(), once: k.once}
	inDoubt, err := k.c.json(ctx, cl, result)
	if inDoubt && errors.Is(err, trivet.ErrNotFound) {
		return result, nil // an earlier attempt deleted it and its response was lost
	}
	return result, err
}
