package head_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet/internal/testhead"
)

// maxMemory is what a head with one machine may need at any time, in bytes, whatever it receives.
const maxMemory = 400 << 20

// peak returns the maximum resident memory of the head so far.
func (h *head) peak() (bytes int) {
	h.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.PID()))
	if err != nil {
		h.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				h.Fatal(err)
			}
			return kb << 10
		}
	}
	h.Fatal("no VmHWM")
	return 0
}

// mustBeUnharmed expects a head that still serves, within its memory and without an error in its log.
func (h *head) mustBeUnharmed() {
	h.Helper()
	h.mustServe()
	if peak := h.peak(); peak > maxMemory {
		h.Errorf("the head had %d MiB", peak>>20)
	}
	for _, word := range []string{"level=ERROR", "panic"} {
		if strings.Contains(h.Log.String(), word) {
			h.Errorf("the log has %s", word)
		}
	}
}

// mustAnswer expects all of these words in an answer, which must be short.
func mustAnswer(t *testing.T, answer string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(answer, word) {
			t.Errorf("the answer has no %q: %.2000q", word, answer)
		}
	}
	if len(answer) > 32<<10 {
		t.Errorf("the answer has %d bytes", len(answer))
	}
}

func dialUDP(t *testing.T, at string) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Datagrams that are not DHCP, or state a wrong length, change nothing.
func TestBadDHCP(t *testing.T) {
	h := newHead(t)
	conn := dialUDP(t, h.Address+":7067")
	mac, _ := net.ParseMAC(knownMAC)
	good, err := dhcpv4.NewDiscovery(mac, dhcpv4.WithRelay(net.IPv4(127, 0, 0, 1)),
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient")))
	if err != nil {
		t.Fatal(err)
	}
	packet := good.ToBytes()
	changed := func(at int, with ...byte) []byte {
		b := bytes.Clone(packet)
		return append(b[:at], append(with, b[min(at+len(with), len(b)):]...)...)
	}
	const options = 240
	bad := [][]byte{
		{}, {1}, make([]byte, 240), make([]byte, 65507), bytes.Repeat([]byte{0xff}, 2048),
		bytes.Repeat([]byte{1}, 1500),
		changed(0, 2), changed(0, 255), // an answer, nonsense
		changed(2, 0), changed(2, 255), changed(3, 255), // no address, a huge one, hops
		changed(12, 255, 255, 255, 255), changed(24, 224, 0, 0, 1), // from everywhere, by a relay that is many
		changed(236, 0, 0, 0, 0),                           // no cookie
		changed(options, 53, 255), changed(options, 53, 0), // a length beyond the end, and none
		changed(options, 52, 1, 3), changed(options, 52, 1, 9), // options continue in file and sname, which hold none
		append(changed(options, 53, 1, 1), bytes.Repeat([]byte{55, 255}, 700)...),
	}
	for n := range packet {
		bad = append(bad, packet[:n])
	}
	chance := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := bytes.Clone(packet)
		for range 1 + chance.IntN(8) {
			b[chance.IntN(len(b))] = byte(chance.Uint32())
		}
		copy(b[28:], mac) // one machine for each would fill the network's range, which is not what is tested
		bad = append(bad, b)
	}
	for _, b := range bad {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	h.mustBeUnharmed()
}

// readRequest is a read request for a file.
func readRequest(name, mode string, options ...string) []byte {
	b := append([]byte{0, 1}, name+"\x00"+mode+"\x00"...)
	for _, o := range options {
		b = append(b, o+"\x00"...)
	}
	return b
}

var badTFTP = []struct {
	what   string
	packet []byte
	words  string // of the ERROR that is answered; empty: nothing is
}{
	{"nothing", nil, ""},
	{"one byte", []byte{0}, ""},
	{"DATA without a transfer", []byte{0, 3, 0, 1, 'x'}, ""},
	{"ACK without a transfer", []byte{0, 4, 0, 1}, ""},
	{"ERROR without a transfer", []byte("\x00\x05\x00\x01x\x00"), ""},
	{"operation 9", []byte("\x00\x09x\x00octet\x00"), ""},
	{"operation 65535", bytes.Repeat([]byte{0xff}, 512), ""},
	{"write", []byte("\x00\x02" + testhead.BootFile + "\x00octet\x00"), "read-only"},
	{"no end of the name", []byte("\x00\x01" + testhead.BootFile), "file name is missing"},
	{"no name", readRequest("", "octet"), "file name is missing"},
	{"long name", readRequest(strings.Repeat("x", 9000), "octet"), "file name is missing or over"},
	{"no mode", []byte("\x00\x01" + testhead.BootFile + "\x00"), "mode octet"},
	{"text mode", readRequest(testhead.BootFile, "netascii"), "mode octet"},
	{"path up", readRequest("../../../../etc/passwd", "octet"), "not found"},
	{"path up, for Windows", readRequest(`..\..\etc\passwd`, "octet"), "not found"},
	{"absolute path", readRequest("/etc/passwd", "octet"), "not found"},
	{"path through a program", readRequest(testhead.BootFile+"/../../../etc/passwd", "octet"), "not found"},
	{"no text", readRequest("\xff\xfe\xfd", "octet"), "not found"},
	{"directory", readRequest(".", "octet"), "not found"},
}

// An invalid TFTP request, or one for a missing file, gets an error.
func TestBadTFTP(t *testing.T) {
	h := newHead(t)
	for _, c := range badTFTP {
		t.Run(c.what, func(t *testing.T) { h.answersTFTP(t, c.packet, c.words) })
	}
	t.Run("options", func(t *testing.T) {
		conn := dialUDP(t, h.Address+":7069")
		for _, o := range [][]string{
			{"blksize", "99999999999999999999"}, {"blksize", "-1"}, {"blksize", "0"}, {"blksize"},
			{"windowsize", "65536"}, {"timeout", "1e9"},
			{"tsize", strings.Repeat("9", 1000)}, {strings.Repeat("x", 5000), strings.Repeat("y", 5000)},
			{"", "", "", ""},
			strings.Split(strings.Repeat("blksize,512,", 400), ","),
		} {
			if _, err := conn.Write(readRequest(testhead.BootFile, "octet", o...)); err != nil {
				t.Fatal(err)
			}
		}
	})
	h.mustBeUnharmed()
}

// answersTFTP sends a packet and wants an ERROR with these words; without words, none is waited for.
func (h *head) answersTFTP(t *testing.T, packet []byte, words string) {
	t.Helper()
	// From a wildcard, as the answer comes from another port.
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	to, _ := net.ResolveUDPAddr("udp4", h.Address+":7069")
	if _, err := conn.WriteTo(packet, to); err != nil {
		t.Fatal(err)
	}
	if words == "" {
		return
	}
	answer := make([]byte, 2048)
	n, _, err := conn.ReadFrom(answer)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(answer[:n], []byte{0, 5}) {
		t.Errorf("answered %q, want an ERROR", answer[:n])
	}
	mustAnswer(t, string(answer[:n]), words)
}

// rawHTTP sends bytes as they are and returns the answer's status and text.
func rawHTTP(t *testing.T, at, text string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	go func() { _, _ = io.WriteString(conn, text) }() // the head may answer and close before it has all
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%.80q: %v", text, err)
	}
	return resp.StatusCode, string(body)
}

// The boot server serves only its files, whatever path, range or header is sent.
func TestBadBootHTTP(t *testing.T) {
	h := newHead(t)
	at := h.Address + ":7481"
	program := "/ipxe/" + testhead.BootFile
	for _, c := range []struct {
		what, line string
		header     string
		status     int
	}{
		{"path up", "GET /../../../etc/passwd", "", 307}, // to /etc/passwd of the server, which does not exist,
		{"path up below a directory", "GET /ipxe/../../../etc/passwd", "", 307},
		{"coded path up", "GET /ipxe/..%2f..%2f..%2fetc%2fpasswd", "", 404},
		{"twice coded path up", "GET /ipxe/%252e%252e%252fetc%252fpasswd", "", 404},
		{"path up for a blob", "GET /blob/..%2f..%2fkeys%2fca.pem", "", 400},
		{"NUL", "GET /ipxe/%00", "", 404},
		{"bad percent", "GET /ipxe/%zz", "", 400},
		{"digest of none", "GET /blob/sha256:zz", "", 400},
		{"no such blob", "GET /blob/sha256:" + strings.Repeat("0", 64), "", 404},
		{"kernel of none", "GET /boot/kernel/xx/../../etc", "", 307},
		{"no MAC", "GET /boot/script/not-a-mac", "", 400},
		{"MAC as long as a book", "GET /boot/script/" + strings.Repeat("52:", 2000), "", 400},
		{"long path", "GET /" + strings.Repeat("x", 100<<10), "", 431},
		{"huge header", "GET " + program, "X: " + strings.Repeat("x", 1<<20) + "\r\n", 431},
		{"many headers", "GET " + program, strings.Repeat("X: y\r\n", 100_000), 431},
		{"header without a colon", "GET " + program, "nonsense\r\n", 400},
		{"range of letters", "GET " + program, "Range: bytes=zz-\r\n", 416},
		{"range backwards", "GET " + program, "Range: bytes=9-1\r\n", 416},
		{"range beyond", "GET " + program, "Range: bytes=99999999999999999999-\r\n", 416},
		{"a thousand ranges", "GET " + program, "Range: bytes=" + strings.Repeat("0-,", 1000) + "0-\r\n", 200},
		{"length below nothing", "POST /phone-home/x", "Content-Length: -1\r\n", 400},
		{"two lengths", "POST /phone-home/x", "Content-Length: 1\r\nContent-Length: 2\r\n", 400},
		{"length and chunks", "POST /phone-home/x", "Content-Length: 1\r\nTransfer-Encoding: xchunked\r\n", 501},
		{"token of none", "POST /phone-home/tb1~x", "Content-Length: 0\r\n", 401},
		{"method of none", "BREW " + program, "", 405},
		{"method that is no token", "G@T " + program, "", 400},
		{"no metadata for unknown clients", "GET /latest/user-data", "", 404},
	} {
		t.Run(c.what, func(t *testing.T) {
			status, body := rawHTTP(t, at, c.line+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+c.header+"\r\n")
			if status != c.status {
				t.Errorf("status %d, want %d: %.200q", status, c.status, body)
			}
			if strings.Contains(body, "root:") || strings.Contains(body, "BEGIN") {
				t.Errorf("it disclosed a file: %.200q", body)
			}
		})
	}
	for what, text := range map[string]string{
		"no HTTP": "hello\r\n\r\n", "HTTP/9": "GET / HTTP/9.9\r\n\r\n", "no Host": "GET / HTTP/1.1\r\n\r\n",
	} {
		t.Run(what, func(t *testing.T) {
			if status, body := rawHTTP(t, at, text+"\r\n\r\n"); status < 400 || status > 505 {
				t.Errorf("status %d: %q", status, body)
			}
		})
	}
	t.Run("TLS record that is no hello", func(t *testing.T) { // an alert (RFC 8446 section 6), and the end
		if status, got := rawHTTP(t, at, "\x16\x03\x01\x00\x05hello"); status != 0 ||
			!strings.Contains(got, `malformed HTTP response "\x15\x03`) {
			t.Errorf("status %d: %q", status, got)
		}
	})
	h.mustBeUnharmed()
}
