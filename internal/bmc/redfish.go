package bmc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
)

// redfishRoot is the root of every Redfish service (DSP0266 §6.4.2).
const redfishRoot = "/redfish/v1/"

type redfishBMC struct {
	cfg    Config
	wire   *redfishWire
	system string // path of the system
	logout string // path of the session; empty: basic authentication

	mu sync.Mutex // serializes calls
}

func openRedfish(ctx context.Context, cfg Config) (Client, error) {
	wire, system, err := newRedfishWire(cfg)
	if err != nil {
		return nil, fail("log in to", cfg, "write host, host:port or an https URL in spec.bmc.address", err)
	}
	b := &redfishBMC{cfg: cfg, wire: wire, system: system}
	if err := b.open(ctx); err != nil {
		b.Close()
		return nil, fail("log in to", cfg, redfishHint(err), err)
	}
	return b, nil
}

// open finds the service, logs in and finds the system.
func (b *redfishBMC) open(ctx context.Context) error {
	var root serviceRoot
	if _, err := b.wire.call(ctx, http.MethodGet, redfishRoot, "", nil, &root); err != nil {
		return err
	}
	if root.Systems.ID == "" {
		return fmt.Errorf("%w: the service lists no systems", trivet.ErrInvalid)
	}
	if err := b.login(ctx, root.Links.Sessions.ID); err != nil {
		return err
	}
	if b.system != "" {
		return nil
	}
	var systems collection
	if _, err := b.wire.call(ctx, http.MethodGet, root.Systems.ID, "", nil, &systems); err != nil {
		return err
	}
	if len(systems.Members) != 1 {
		return fmt.Errorf("%w: the BMC has %d systems%s; select one by spec.bmc.address: "+
			"https://HOST/redfish/v1/Systems/ID",
			trivet.ErrInvalid, len(systems.Members), systems.list())
	}
	b.system = systems.Members[0].ID
	return nil
}

// login creates a session. Where the service has no sessions, or none free, each request carries the password.
func (b *redfishBMC) login(ctx context.Context, sessions string) error {
	if sessions != "" {
		body := map[string]string{"UserName": b.cfg.User, "Password": b.cfg.Password}
		answer, err := b.wire.call(ctx, http.MethodPost, sessions, "", body, nil)
		var refused *redfishError
		switch {
		case err == nil && answer.token != "":
			b.wire.token, b.logout = answer.token, answer.location
			return nil
		case err != nil && !errors.As(err, &refused), errors.Is(err, trivet.ErrUnauthenticated):
			return err
		}
	}
	b.wire.basic = true
	return nil
}

func (b *redfishBMC) Power(ctx context.Context) (State, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	s, _, err := b.getSystem(ctx)
	if err != nil {
		return "", fail("read power of", b.cfg, redfishHint(err), err)
	}
	state, err := s.state()
	return state, fail("read power of", b.cfg, "", err)
}

func (b *redfishBMC) SetPower(ctx context.Context, want State) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := checkState(want)
	if err == nil {
		err = b.sendPower(ctx, want)
	}
	if err == nil {
		err = settle(ctx, want, b.Power)
	}
	return fail("power "+string(want), b.cfg, redfishHint(err), err)
}

// sendPower sends the command, unless the machine is in the wanted state.
func (b *redfishBMC) sendPower(ctx context.Context, want State) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, _, err := b.getSystem(ctx)
	if err != nil {
		return err
	}
	if now, err := s.state(); err != nil || now == want {
		return err
	}
	reset := s.Actions.Reset
	if reset.Target == "" {
		return fmt.Errorf("%w: the system %s offers no power control", trivet.ErrInvalid, b.system)
	}
	// PushPowerButton toggles; GracefulShutdown depends on the operating system.
	kind, err := pick(reset.Allowed, map[State][]string{On: {"On", "ForceOn"}, Off: {"ForceOff"}}[want])
	if err != nil {
		return fmt.Errorf("power %s: %w", want, err)
	}
	_, err = b.wire.call(ctx, http.MethodPost, reset.Target, "", map[string]string{"ResetType": kind}, nil)
	return err
}

func (b *redfishBMC) SetNextBoot(ctx context.Context, device Device) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := checkDevice(device); err != nil {
		return fail("set next boot of", b.cfg, "", err)
	}
	err := b.patchBoot(ctx, device)
	if errors.Is(err, trivet.ErrConflict) {
		err = b.patchBoot(ctx, device) // the system was changed between the two requests
	}
	return fail("set next boot of", b.cfg, redfishHint(err), err)
}

func (b *redfishBMC) patchBoot(ctx context.Context, device Device) error {
	s, etag, err := b.getSystem(ctx)
	if err != nil {
		return err
	}
	target, err := pick(s.Boot.Allowed, map[Device][]string{Network: {"Pxe", "UefiHttp"}, Disk: {"Hdd"}}[device])
	if err != nil {
		return fmt.Errorf("boot from %s: %w", device, err)
	}
	boot := map[string]string{"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": target}
	if b.cfg.UEFI && s.Boot.Mode != "" {
		boot["BootSourceOverrideMode"] = "UEFI"
	}
	_, err = b.wire.call(ctx, http.MethodPatch, b.system, etag, map[string]any{"Boot": boot}, nil)
	return err
}

func (b *redfishBMC) getSystem(ctx context.Context) (s system, etag string, err error) {
	answer, err := b.wire.call(ctx, http.MethodGet, b.system, "", nil, &s)
	if answer.etag == "" {
		answer.etag = s.ETag
	}
	return s, answer.etag, err
}

func (b *redfishBMC) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.logout != "" {
		ctx, cancel := context.WithTimeout(context.Background(), logoutTimeout)
		defer cancel()
		// The error is ignored: the BMC ends an idle session.
		b.wire.call(ctx, http.MethodDelete, b.logout, "", nil, nil)
		b.logout = ""
	}
	b.wire.close()
}

// pick returns the first of want that is allowed, or the first where the service does not list the allowed values.
func pick(allowed, want []string) (string, error) {
	if len(allowed) == 0 {
		return want[0], nil
	}
	for _, w := range want {
		if slices.Contains(allowed, w) {
			return w, nil
		}
	}
	return "", fmt.Errorf("%w: the BMC offers only %.200q, not %s", trivet.ErrInvalid, allowed,
		strings.Join(want, " or "))
}

// redfishHint returns the hint for an error.
func redfishHint(err error) string {
	switch {
	case errors.Is(err, errAddress):
		return hintAddress
	case errors.Is(err, trivet.ErrUnauthenticated):
		return "check user and password in its secret"
	case errors.Is(err, trivet.ErrForbidden):
		return "give the BMC's user the role Operator or Administrator"
	case errors.Is(err, errCertificate):
		return "give the BMC a certificate that this head trusts, or set spec.insecure of its secret (only an " +
			"admin may)"
	case errors.Is(err, trivet.ErrUnavailable):
		return "check that the address answers and Redfish is enabled in the BMC"
	}
	return ""
}
