package lab

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/wait"
)

// writer updates one record with an increasing counter, like a client of the SDK.
type writer struct {
	client *client.Client
	record string // a machine that is not installed
	note   func(subject, text string, began time.Time)

	mu    sync.Mutex
	acked int       // guarded by mu; the last acknowledged count
	begun time.Time // guarded by mu; start of the unanswered write; zero: none
	acks  []time.Time
}

const countLabel = "count"

func (w *writer) run(ctx context.Context) error {
	_, err := client.Of[trivet.Machine](w.client).Create(ctx, &trivet.Machine{
		Meta: trivet.Meta{Name: w.record}, Spec: trivet.MachineSpec{Cordoned: true}})
	for n := 1; err == nil && ctx.Err() == nil; n++ {
		w.write(ctx, n)
		_ = wait.Sleep(ctx, 5*time.Millisecond)
	}
	return err
}

// write writes a count until it is acknowledged. It is idempotent.
func (w *writer) write(ctx context.Context, n int) {
	began := time.Now()
	w.mu.Lock()
	w.begun = began
	w.mu.Unlock()
	for {
		patch := fmt.Appendf(nil, `{"labels":{%q:"%d"}}`, countLabel, n)
		_, err := client.Of[trivet.Machine](w.client).Patch(ctx, w.record, patch, 0)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		_ = wait.Sleep(ctx, 20*time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked, w.begun, w.acks = n, time.Time{}, append(w.acks, time.Now())
	w.note(w.record, strconv.Itoa(n), began)
}

// unanswered reports whether a write is in progress.
func (w *writer) unanswered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.begun.IsZero()
}

// lost reports whether the record has a lower count than was acknowledged.
func (w *writer) lost(ctx context.Context) (bool, error) {
	m, err := client.Of[trivet.Machine](w.client).Get(ctx, w.record)
	if err != nil {
		return false, err
	}
	n, err := strconv.Atoi(m.Labels[countLabel])
	w.mu.Lock()
	defer w.mu.Unlock()
	return n < w.acked, err
}

// probeAddress is the address of the machine whose boot script is fetched all the time.
var probeAddress = netip.MustParseAddr("127.76.0.1")

// booter fetches a boot script repeatedly, from one head after the other, like a booting machine.
type booter struct {
	urls []string
	mu   sync.Mutex
	got  []time.Time // guarded by mu
}

func (b *booter) run(ctx context.Context) error {
	// Each request has a new connection, as that of a machine.
	c := clientAt(probeAddress)
	c.Timeout, c.Transport.(*http.Transport).DisableKeepAlives = 5*time.Second, true
	for i := 0; ctx.Err() == nil; i++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.urls[i%len(b.urls)], nil)
		if err != nil {
			return err
		}
		resp, err := c.Do(req)
		if err != nil {
			continue // try the next head at once
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			b.mu.Lock()
			b.got = append(b.got, time.Now())
			b.mu.Unlock()
		}
		_ = wait.Sleep(ctx, 5*time.Millisecond)
	}
	return nil
}

// Gap is the time without a success around a kill, in ms.
type Gap struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// gaps returns, over all faults and clients, the time between the last success before the fault and the first one
// after it.
func gaps(faults []time.Time, successes ...[]time.Time) Gap {
	var all []int64
	for _, times := range successes {
		for _, at := range faults {
			i, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
			if i > 0 && i < len(times) {
				all = append(all, times[i].Sub(times[i-1]).Milliseconds())
			}
		}
	}
	if len(all) == 0 {
		return Gap{}
	}
	slices.Sort(all)
	at := func(share float64) int64 { return all[min(int(share*float64(len(all))), len(all)-1)] }
	return Gap{at(0.5), at(0.99), all[len(all)-1]}
}
