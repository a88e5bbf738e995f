package bmctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/bmc"
)

// Redfish runs a simulated Redfish service on a free port of 127.0.0.1 for one test and returns the Config to reach
// it. It is part of this project: it proves that client and service agree on DSP0266, not that a vendor's BMC does.
func Redfish(t TB, m Machine) bmc.Config {
	t.Helper()
	return Serve(t, NewService(m))
}

// Service is the simulated Redfish service: one system, sessions and basic authentication, entity tags that must
// match.
type Service struct {
	User, Password string
	// SerialConsole is that of the system, ManagerConsole that of its manager, as in DSP0268; nil: none. They are set
	// before the first request.
	SerialConsole, ManagerConsole any

	mux *http.ServeMux
	log map[string]any // what the system has of it; nil: there is none

	managerLog map[string]any // what its manager has of it
	mu         sync.Mutex
	machine    Machine         // guarded by mu
	version    int             // guarded by mu; the system's entity tag
	boot       string          // guarded by mu
	tokens     map[string]bool // guarded by mu
}

// SystemPath is the path of the service's system.
const SystemPath = "/redfish/v1/Systems/1"

const managerPath = "/redfish/v1/Managers/1"

const sessionsPath = "/redfish/v1/SessionService/Sessions"

// NewService returns a service for m, an [http.Handler].
func NewService(m Machine) *Service {
	s := &Service{User: "trivet", Password: rand.Text(), machine: m, boot: "None", tokens: map[string]bool{},
		mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /redfish/v1/{$}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"Systems": odata("/redfish/v1/Systems"),
			"Links": map[string]any{"Sessions": odata(sessionsPath)}})
	})
	s.mux.HandleFunc("POST "+sessionsPath, s.login)
	s.mux.HandleFunc("DELETE "+sessionsPath+"/{token}", s.needLogin(s.logout))
	s.mux.HandleFunc("GET /redfish/v1/Systems", s.needLogin(func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"Members": []any{odata(SystemPath)}, "Members@odata.count": 1})
	}))
	s.mux.HandleFunc("GET "+SystemPath, s.needLogin(s.getSystem))
	s.mux.HandleFunc("GET "+managerPath, s.needLogin(func(w http.ResponseWriter, _ *http.Request) {
		body := map[string]any{"SerialConsole": s.ManagerConsole}
		maps.Copy(body, s.managerLog)
		reply(w, body)
	}))
	s.mux.HandleFunc("PATCH "+SystemPath, s.needLogin(s.patchSystem))
	s.mux.HandleFunc("POST "+SystemPath+"/Actions/ComputerSystem.Reset", s.needLogin(s.reset))
	return s
}

// ServeHTTP serializes the requests.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mux.ServeHTTP(w, r)
}

// Sessions returns the number of open sessions.
func (s *Service) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens)
}

func (s *Service) needLogin(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if s.tokens[r.Header.Get("X-Auth-Token")] || user == s.User && password == s.Password {
			next(w, r)
			return
		}
		refuse(w, http.StatusUnauthorized, "NoValidSession")
	}
}

func (s *Service) login(w http.ResponseWriter, r *http.Request) {
	var in struct{ UserName, Password string }
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.UserName != s.User || in.Password != s.Password {
		refuse(w, http.StatusUnauthorized, "ResourceAtUriUnauthorized")
		return
	}
	token := rand.Text()
	s.tokens[token] = true
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", sessionsPath+"/"+token)
	w.WriteHeader(http.StatusCreated)
}

func (s *Service) logout(w http.ResponseWriter, r *http.Request) {
	delete(s.tokens, r.PathValue("token"))
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) etag() string { return fmt.Sprintf(`W/"%d"`, s.version) }

func (s *Service) getSystem(w http.ResponseWriter, _ *http.Request) {
	power := map[bmc.State]string{bmc.On: "On", bmc.Off: "Off", bmc.Changing: "PoweringOn"}[s.machine.Power()]
	w.Header().Set("ETag", s.etag())
	body := map[string]any{
		"PowerState":    power,
		"SerialConsole": s.SerialConsole,
		"Links":         map[string]any{"ManagedBy": []any{odata(managerPath)}},
		"Boot": map[string]any{
			"BootSourceOverrideTarget": s.boot, "BootSourceOverrideMode": "UEFI",
			"BootSourceOverrideTarget@Redfish.AllowableValues": []string{"None", "Pxe", "Hdd", "BiosSetup"}},
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target":                            SystemPath + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []string{"PushPowerButton", "GracefulShutdown", "On", "ForceOff"}}},
	}
	maps.Copy(body, s.log)
	reply(w, body)
}

func (s *Service) patchSystem(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("If-Match") != s.etag() {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	var in struct {
		Boot struct{ BootSourceOverrideEnabled, BootSourceOverrideTarget, BootSourceOverrideMode string }
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	device, ok := map[string]bmc.Device{"Pxe": bmc.Network, "Hdd": bmc.Disk}[in.Boot.BootSourceOverrideTarget]
	if err != nil || !ok || in.Boot.BootSourceOverrideEnabled != "Once" {
		refuse(w, http.StatusBadRequest, "PropertyValueNotInList")
		return
	}
	if err := s.machine.SetNextBoot(device); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.version++
	s.boot = in.Boot.BootSourceOverrideTarget
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) reset(w http.ResponseWriter, r *http.Request) {
	var in struct{ ResetType string }
	err := json.NewDecoder(r.Body).Decode(&in)
	want, ok := map[string]bmc.State{"On": bmc.On, "ForceOff": bmc.Off}[in.ResetType]
	switch {
	case err != nil || !ok:
		refuse(w, http.StatusBadRequest, "ActionParameterValueNotInList")
	case s.machine.Power() == want:
		refuse(w, http.StatusConflict, "the machine is "+string(want)+" already") // some BMCs do
	default:
		if err := s.machine.SetPower(want); err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
		s.version++
		w.WriteHeader(http.StatusNoContent)
	}
}

func odata(path string) map[string]string { return map[string]string{"@odata.id": path} }

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": "Base.1.0.GeneralError",
		"message": "See ExtendedInfo", "@Message.ExtendedInfo": []any{map[string]string{"Message": message}}}})
}

// Serve runs a handler as a BMC's HTTPS service for one test. The login is the service's where h is a *Service.
func Serve(t TB, h http.Handler) bmc.Config {
	t.Helper()
	server, err := StartRedfish("127.0.0.1:0", h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	})
	cfg := bmc.Config{Protocol: bmc.Redfish, Address: server.Address, Allows: netip.Addr.IsLoopback, Insecure: true}
	if s, ok := h.(*Service); ok {
		cfg.User, cfg.Password = s.User, s.Password
	}
	return cfg
}

// RedfishServer is a running HTTPS service with a certificate that cannot be verified.
type RedfishServer struct {
	Address string // host:port

	server *http.Server
	done   chan error
}

// StartRedfish runs a handler as a BMC's HTTPS service at an address, host:port, until Stop. Port 0 is a free one.
func StartRedfish(address string, h http.Handler) (*RedfishServer, error) {
	cert, err := selfSigned()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &RedfishServer{Address: l.Addr().String(), done: make(chan error, 1),
		server: &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}},
			ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}} // of clients that are killed
	go func() { s.done <- s.server.ServeTLS(l, "", "") }()
	return s, nil
}

// Stop ends the service, and the requests that are in progress.
func (s *RedfishServer) Stop() error {
	err := s.server.Close()
	if ended := <-s.done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
