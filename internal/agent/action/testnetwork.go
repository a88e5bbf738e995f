package action

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/inventory"
)

// testNetwork fetches a blob from a head, and compares what the ports have counted before and after.
func (e *Env) testNetwork(ctx context.Context, at *Attempt, s *actionspec.TestNetwork) error {
	kernel, before := e.watchKernel(), e.ports()
	defer kernel.report(at.Log)
	transferred, err := e.transfer(ctx, at, s)
	if ctx.Err() != nil && err != nil && !isFailure(err) {
		return err
	}
	after := e.ports()
	counted := portsSince(after, before)
	for _, p := range counted {
		fmt.Fprintln(at.Log, portText(p))
	}
	linked := 0
	for _, p := range after {
		if p.Link && !p.USB {
			linked++
		}
	}
	at.Note(fmt.Sprintf("%s; %d ports, %d with a link", transferred, len(after), linked))
	errs := []error{err}
	for _, p := range counted {
		errs = append(errs, portFault(p, s))
	}
	errs = append(errs, portsFault(counted, linked, s))
	return faultsOf(errs)
}

// ports returns the ports of the machine; a simulated one has none.
func (e *Env) ports() []inventory.Port {
	if e.Sys == nil {
		return nil
	}
	return inventory.Ports(e.Sys)
}

// portsSince returns ports with what they have counted since an earlier reading.
func portsSince(ports, before []inventory.Port) []inventory.Port {
	was := map[string]inventory.Port{}
	for _, p := range before {
		was[p.Name] = p
	}
	out := make([]inventory.Port, len(ports))
	for i, p := range ports {
		b := was[p.Name]
		p.Damaged, p.Lost = p.Damaged-b.Damaged, p.Lost-b.Lost
		p.Received, p.Sent = p.Received-b.Received, p.Sent-b.Sent
		p.Errors, p.Dropped = p.Errors-b.Errors, p.Dropped-b.Dropped
		out[i] = p
	}
	return out
}

func portText(p inventory.Port) string {
	link := "no link"
	if p.Link {
		link = "link"
		if p.Speed > 0 {
			link += fmt.Sprintf(", %d Mbit/s", p.Speed)
		}
		if p.Duplex != "" {
			link += ", " + p.Duplex + " duplex"
		}
	}
	return fmt.Sprintf("%s (%s, %s): %s; meanwhile received %d KiB, sent %d KiB, damaged frames %d, lost links %d, "+
		"errors %d, dropped %d", p.Name, p.MAC, p.Driver, link, p.Received>>10, p.Sent>>10, p.Damaged, p.Lost, p.Errors,
		p.Dropped)
}

// portFault returns what is wrong with the link of a port; nil where nothing is.
func portFault(p inventory.Port, s *actionspec.TestNetwork) error {
	switch {
	case !p.Link:
		return nil
	case p.Duplex == "half":
		return finalf(trivet.FaultMachine, "%s runs at half duplex: its cable, or the port of the switch, is faulty or set "+
			"so", p.Name)
	case p.Speed > 0 && p.Speed < int64(s.MinSpeed) && !p.USB:
		return finalf(trivet.FaultMachine, "%s runs at %d Mbit/s, and minSpeed is %d", p.Name, p.Speed, s.MinSpeed)
	}
	return nil
}

// portsFault returns what is wrong with all ports together; nil where nothing is.
func portsFault(counted []inventory.Port, linked int, s *actionspec.TestNetwork) error {
	var errs []error
	if linked < s.Links {
		errs = append(errs, finalf(trivet.FaultMachine, "%d of %d ports have a link, and %d must", linked, len(counted),
			s.Links))
	}
	bad, names := int64(0), ""
	for _, p := range counted {
		if n := p.Damaged + p.Lost; n > 0 {
			bad += n
			names += " " + p.Name
		}
	}
	if bad > int64(s.Errors) {
		errs = append(errs, finalf(trivet.FaultMachine, "%d damaged frames and lost links were counted during the test, "+
			"and %d are allowed; at the ports%s", bad, s.Errors, names))
	}
	return faultsOf(errs)
}

// smallBlob is the size below which a blob is fetched once, and no rate is judged: no initramfs is that small, and
// heads would get millions of requests.
const smallBlob = 64 << 10

// transfer fetches the initramfs of the machine's platform, as often as the wanted size needs, and returns the rate.
func (e *Env) transfer(ctx context.Context, at *Attempt, s *actionspec.TestNetwork) (note string, err error) {
	ref := at.Run.Initrd
	if ref == nil || ref.Bytes <= 0 {
		return "nothing was fetched", finalf(trivet.FaultConfiguration, "the run names no blob to fetch, as the machine's "+
			"platform is not known; see: trivet platform usage")
	}
	// Without the digests of its parts, what is wrong is not fetched again from another head.
	whole := trivet.BlobRef{Digest: ref.Digest, Bytes: ref.Bytes}
	began, done := time.Now(), int64(0)
	wanted := int64(s.Transfer)
	if whole.Bytes < smallBlob {
		wanted = min(wanted, whole.Bytes)
		fmt.Fprintf(at.Log, "network: %s has %d bytes only, and is fetched once; no rate is judged\n", whole.Digest,
			whole.Bytes)
	}
	for done < wanted {
		if err := e.fetchWhole(ctx, at, whole, &done, wanted); err != nil {
			return rate(done, time.Since(began)), err
		}
	}
	took := time.Since(began)
	fmt.Fprintf(at.Log, "network: %s was fetched by the port %s: %s; each time with the right digest\n", whole.Digest,
		e.bootPort(at), rate(done, took))
	got := float64(done) / max(took.Seconds(), 0.001)
	if whole.Bytes >= smallBlob && got < float64(s.MinRate) {
		err = finalf(trivet.FaultMachine, "network: the port %s received %.0f MB/s, and minRate is %.0f MB/s", e.bootPort(at),
			got/1e6, float64(s.MinRate)/1e6)
	}
	return rate(done, took), err
}

// fetchWhole fetches a blob once, to its end, where its digest is verified.
func (e *Env) fetchWhole(ctx context.Context, at *Attempt, ref trivet.BlobRef, done *int64, total int64) error {
	r, err := e.Fetch(ctx, at.Blobs(), ref)
	if err != nil {
		return Fault(trivet.FaultNetwork, fmt.Errorf("network: fetch a blob from a head: %w", err))
	}
	defer r.Close()
	_, err = io.Copy(writerFunc(func(b []byte) (int, error) {
		*done += int64(len(b))
		at.Progress(*done, max(total, *done), "bytes")
		return len(b), nil
	}), r)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, trivet.ErrInvalid):
		return finalf(trivet.FaultMachine, "network: what the port %s received is not what the head has sent: %w",
			e.bootPort(at), err)
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return context.Cause(ctx)
	}
	return failf(trivet.FaultNetwork, "network: after %d MiB: %w", *done>>20, err)
}

// bootPort returns the name of the port that the machine has booted from, or else its MAC.
func (e *Env) bootPort(at *Attempt) string {
	if at.Run.Network == nil {
		return "that it has booted from"
	}
	for _, p := range e.ports() {
		if p.MAC == at.Run.Network.MAC {
			return p.Name
		}
	}
	return at.Run.Network.MAC
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
