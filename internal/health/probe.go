package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/tftp"
)

// probesSince is the release whose heads know probes. An earlier one would take them for machines.
const probesSince trivet.Release = "0.3.1"

// probeTimeout bounds the probes of one head in one network.
const probeTimeout = 4 * time.Second

// probes boots synthetically from each head in each network of this one, all at the same time.
func (s *Source) probes(ctx context.Context) []trivet.ProbeFacts {
	site, err := s.Tables.Sites.GetShared(trivet.SiteName)
	ports := s.Ports()
	if err != nil || site.Status.ClusterVersion.Compare(probesSince) < 0 || ports.DHCP == 0 {
		return nil
	}
	targets := plan(s.Head, slices.Collect(s.Tables.Heads.AllShared()), slices.Collect(s.Tables.Networks.AllShared()))
	kernel := ""
	if p, err := s.Tables.Platforms.GetShared(site.Spec.Platform); err == nil {
		kernel = p.Spec.Kernel.Digest
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	results := make([][]trivet.ProbeFacts, len(targets))
	var running sync.WaitGroup
	for i, t := range targets {
		running.Go(func() { results[i] = probe(ctx, t, ports, kernel) })
	}
	running.Wait()
	return slices.Concat(results...)
}

// probe does what firmware and iPXE do: it asks for what to boot, loads the first block of it, fetches the script, and
// asks for the kernel, if the site has one.
func probe(ctx context.Context, t target, ports Ports, kernel string) (all []trivet.ProbeFacts) {
	var mu sync.Mutex
	note := func(service string, err error) {
		p := trivet.ProbeFacts{Network: t.network, Head: t.head, Service: service}
		if err != nil {
			p.Problem = problemOf(err)
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, p)
	}
	var running sync.WaitGroup
	running.Go(func() {
		lease, err := dhcp.Probe(ctx, t.from, netip.AddrPortFrom(t.to, ports.DHCP))
		if err == nil && lease.BootFile == "" {
			err = fmt.Errorf("%w: its answer names no boot file", trivet.ErrNotFound)
		}
		note(trivet.ProbeDHCP, err)
		if ports.TFTP == 0 {
			return
		}
		file := boot.UEFIx64.File()
		if err == nil {
			file = lease.BootFile
		}
		note(trivet.ProbeTFTP, tftp.Probe(ctx, t.from, netip.AddrPortFrom(t.to, ports.TFTP), file))
	})
	if t.boot != "" {
		running.Go(func() { note(trivet.ProbeScript, probeScript(ctx, t)) })
		if kernel != "" {
			running.Go(func() { note(trivet.ProbeKernel, probeKernel(ctx, t, kernel)) })
		}
	}
	running.Wait()
	slices.SortFunc(all, func(a, b trivet.ProbeFacts) int { return strings.Compare(a.Service, b.Service) })
	return all
}

// maxProblem bounds the text of a problem, in bytes.
const maxProblem = 200

func problemOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")
}

// maxScript is how much of a script is read.
const maxScript = 64 << 10

func probeScript(ctx context.Context, t target) error {
	resp, err := request(ctx, t, http.MethodGet, boot.ScriptPath(dhcp.ProbeMAC))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxScript))
	if err == nil && !bytes.HasPrefix(text, []byte("#!ipxe\n")) {
		err = fmt.Errorf("%w: what it sends is no script", trivet.ErrUnavailable)
	}
	return err
}

func probeKernel(ctx context.Context, t target, digest string) error {
	resp, err := request(ctx, t, http.MethodHead, boot.KernelPath(dhcp.ProbeMAC, digest))
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// request sends a request from the address that the heads know this one by in that network.
func request(ctx context.Context, t target, method, path string) (*http.Response, error) {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.from, 0))}
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, method, t.boot+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		err = fmt.Errorf("%w: %s %s: %s", trivet.ErrUnavailable, method, path, resp.Status)
	}
	return resp, err
}
