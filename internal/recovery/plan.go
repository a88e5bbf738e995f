package recovery

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
)

// What a cluster is recovered from.
const (
	FromBackupFile = "backup"
	FromDataDir    = "data directory"
)

// Plan is what a recovery does, and what is lost by it. What is lost cannot be known exactly: it is all that was
// written after DataTime, which has revisions above Revision, and at most Revision+Jump.
type Plan struct {
	From    string `json:"from"`
	Source  string `json:"source"`
	Cluster string `json:"cluster"`
	// Member is the head that the data is of; Torn, that the end of its log was written incompletely, and left out.
	Member string `json:"member,omitempty"`
	Torn   bool   `json:"torn,omitempty"`
	// DataTime is when the records were saved, by the clock that saved them; Age how long ago that is by this clock.
	DataTime time.Time       `json:"dataTime"`
	Age      trivet.Duration `json:"age"`
	Revision int64           `json:"revision"`
	Jump     int64           `json:"jump"`

	Dir         string    `json:"dir"`
	Head        string    `json:"head"` // the name of the new head
	Advertise   []string  `json:"advertise,omitempty"`
	Incarnation string    `json:"incarnation"`
	Former      string    `json:"formerIncarnation,omitempty"`
	Cause       string    `json:"cause,omitempty"` // [trivet.Recovered.Cause]
	Time        time.Time `json:"time"`

	Heads      []string       `json:"heads"`            // that are fenced
	Machines   map[string]int `json:"machines"`         // by state, in the records
	Unverified int            `json:"unverified"`       // machines that are not claimed until they are verified
	Intents    int            `json:"intents"`          // power requests that are dropped
	Schedules  []string       `json:"schedules"`        // of backups, that are suspended
	Bucket     bool           `json:"bucket,omitempty"` // the site has one for images: writing to it is suspended
	// Frozen are the provisions that wait for a decision, at most MaxListed; FrozenCount is how many there are.
	Frozen      []string `json:"frozen"`
	FrozenCount int      `json:"frozenCount"`
	// Blobs are those that records refer to, BlobsMissing those of them whose contents are not there: import them
	// again. MissingBlobs names these, at most MaxListed.
	Blobs        int           `json:"blobs"`
	BlobsMissing int           `json:"blobsMissing"`
	MissingBlobs []MissingBlob `json:"missingBlobs,omitempty"`
	// Answering are the heads of the cluster that respond now.
	Answering []Answer `json:"answering"`

	refs  []trivet.BlobRef  // of the contents that are there
	known map[string]string // URLs of heads by name
	names int               // heads' names that were assigned, or may have been
}

// MaxListed bounds the lists of a plan.
const MaxListed = 100

// MissingBlob is a blob whose content is not there.
type MissingBlob struct {
	Digest string `json:"digest"`
	UsedBy string `json:"usedBy"` // a record that refers to it, such as image/debian
}

// Answer is the response of a head that runs.
type Answer struct {
	Head     string `json:"head"`
	URL      string `json:"url"`
	Quorum   bool   `json:"quorum"`
	Revision int64  `json:"revision,omitempty"`
	Later    bool   `json:"later,omitempty"` // it is of a later incarnation
}

// lostNames is how many names of heads may have been assigned after the records were saved. Those heads are refused as
// removed, as their names are.
const lostNames = 100

var assignedName = regexp.MustCompile(`^head([0-9]{1,9})$`)

// describe adds what the records say.
func (p *Plan) describe(t *state.Tables, name string) error {
	p.Time, p.Machines, p.Heads, p.Frozen = now(), map[string]int{}, []string{}, []string{}
	p.Age = trivet.Duration(max(0, p.Time.Sub(p.DataTime)))
	p.known = map[string]string{}
	p.Revision = t.Store.Revision() - Jump
	site, err := t.Sites.Get(trivet.SiteName)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	if err == nil {
		p.names, p.Bucket = site.Status.HeadNames, site.Spec.Blobs != nil
		if site.Status.Recovered != nil {
			p.Former = site.Status.Recovered.Incarnation
		}
	}
	p.describeHeads(t)
	if err := p.setName(name); err != nil {
		return err
	}
	p.Incarnation = newIncarnation(p.Former, p.Time)
	p.Schedules = append([]string{}, t.Schedules.Names()...)
	p.describeMachines(t)
	for v := range t.Provisions.AllShared() {
		if !v.Status.State.Ended() {
			if p.FrozenCount++; p.FrozenCount <= MaxListed {
				p.Frozen = append(p.Frozen, v.ShortName())
			}
		}
	}
	return nil
}

// describeBlobs adds the blobs that records refer to.
func (p *Plan) describeBlobs(t *state.Tables, lacks func(trivet.BlobRef) (bool, error)) error {
	uses := map[string]state.BlobUse{}
	for use := range t.BlobUses() {
		if _, ok := uses[use.Ref.Digest]; !ok {
			uses[use.Ref.Digest] = use
		}
	}
	p.Blobs = len(uses)
	for _, digest := range slices.Sorted(maps.Keys(uses)) {
		use := uses[digest]
		missing, err := lacks(use.Ref)
		if err != nil {
			return err
		}
		if !missing {
			p.refs = append(p.refs, use.Ref)
			continue
		}
		if p.BlobsMissing++; p.BlobsMissing <= MaxListed {
			by := strings.ToLower(string(use.Kind)) + "/" + use.Name
			p.MissingBlobs = append(p.MissingBlobs, MissingBlob{digest, by})
		}
	}
	return nil
}

func (p *Plan) describeHeads(t *state.Tables) {
	for h := range t.Heads.AllShared() {
		if n := assignedName.FindStringSubmatch(h.Name); n != nil {
			number, _ := strconv.Atoi(n[1]) // it matches
			p.names = max(p.names, number+1)
		}
		if h.Status.State != trivet.HeadRemoved {
			p.Heads = append(p.Heads, h.Name)
		}
		if h.Status.State != trivet.HeadRemoved || h.Status.Fenced {
			p.known[h.Name] = h.Status.Peer
		}
	}
	slices.Sort(p.Heads)
	p.names += lostNames
}

// setName chooses the name of the new head: never one that another head has, or had. Certificates are by name.
func (p *Plan) setName(name string) error {
	if name == "" {
		p.Head = fmt.Sprint("head", p.names)
		p.names++
		return nil
	}
	if err := trivet.ValidateName(name); err != nil {
		return err
	}
	if _, ok := p.known[name]; ok || slices.Contains(p.Heads, name) || assignedName.MatchString(name) {
		return &trivet.FieldError{Field: "--name", Problem: fmt.Sprintf("%s is the name of another head, or may have "+
			"been: pass one that is not head and a number, or omit it", name)}
	}
	p.Head = name
	return nil
}

// newIncarnation returns another incarnation, later than all others as far as clocks can be trusted, and at least later
// than the former one.
func newIncarnation(former string, now time.Time) string {
	var id [4]byte
	rand.Read(id[:])
	return fmt.Sprintf("%d-%s", max(int64(peer.Recoveries(former))+1, now.Unix()), hex.EncodeToString(id[:]))
}

func (p *Plan) describeMachines(t *state.Tables) {
	for m := range t.Machines.AllShared() {
		p.Machines[string(m.Status.State)]++
		if m.Status.Intent != nil {
			p.Intents++
		}
		after := *m
		if recoverMachine(&after, runOf(t, m), p.Time); isUnverified(&after) {
			p.Unverified++
		}
	}
}

// probe calls the heads that are known.
func (p *Plan) probe(ctx context.Context, m *material) {
	urls := map[string]bool{}
	for _, url := range append(slices.Collect(maps.Values(p.known)), m.peers...) {
		if url != "" {
			urls[url] = true
		}
	}
	p.Answering = []Answer{}
	client, err := p.client(m.keys)
	if err != nil {
		return
	}
	defer client.Close()
	var mu sync.Mutex
	var calls sync.WaitGroup
	for url := range urls {
		calls.Go(func() {
			info, err := client.Ping(ctx, url)
			a := Answer{Head: info.Head, URL: url, Quorum: info.Leader != "", Revision: info.Revision,
				Later: errors.Is(err, trivet.ErrForbidden)}
			if err == nil || a.Later {
				mu.Lock()
				defer mu.Unlock()
				p.Answering = append(p.Answering, a)
			}
		})
	}
	calls.Wait()
	slices.SortFunc(p.Answering, func(a, b Answer) int { return strings.Compare(a.URL, b.URL) })
}

// client returns a client that calls the heads as one of the former incarnation.
func (p *Plan) client(keys *auth.Keys) (*peer.Client, error) {
	key, err := auth.PeerKey()
	if err != nil {
		return nil, err
	}
	csr, err := auth.PeerRequest(key)
	if err != nil {
		return nil, err
	}
	text, err := keys.CA.SignPeer(auth.Peer{Name: p.Head, Role: auth.PeerHead}, csr, time.Now())
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(text, key)
	if err != nil {
		return nil, err
	}
	c := peer.NewClient(func() (*tls.Certificate, error) { return &cert, nil },
		func() *auth.Root { return &keys.CA.Root },
		func() peer.Info { return peer.Info{Head: p.Head, Protocol: peer.Protocol, Time: time.Now()} })
	c.SetIncarnation(func() string { return p.Former })
	return c, nil
}

// checkAlive refuses a recovery while the cluster serves.
func (p *Plan) checkAlive() error {
	for _, a := range p.Answering {
		refused := &trivet.Error{Op: "recover", Name: "cluster " + p.Cluster}
		switch {
		case a.Later:
			refused.Err = fmt.Errorf("%w: it was recovered already: the head at %s is of a later incarnation",
				trivet.ErrConflict, a.URL)
			refused.Hint = "let heads join that one: trivet head token"
		case a.Quorum:
			lost := "what was written since " + p.DataTime.Format(time.RFC3339)
			if a.Revision > p.Revision {
				lost = fmt.Sprintf("what was written since, revisions %d to %d", p.Revision+1, a.Revision)
			}
			refused.Err = fmt.Errorf("%w: it is alive: %s at %s has a quorum. This would have destroyed %s, and "+
				"fenced %s", trivet.ErrConflict, a.Head, a.URL, lost, strings.Join(p.Heads, ", "))
			refused.Hint = "replace the head that is lost: trivet head replace; or, to give that cluster up, stop " +
				"its heads first"
		default:
			continue
		}
		return refused
	}
	return nil
}
