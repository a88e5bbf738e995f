package bmc

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/trivet-project/trivet"
)

// hostKeyAlgorithms are those by which a BMC may prove its host key, the best first. Certificates are not among them.
var hostKeyAlgorithms = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}

// hostKeys are the SSH host keys that are accepted.
type hostKeys []ssh.PublicKey

// parseHostKeys parses lines such as "ssh-ed25519 AAAA... comment"; those that are empty or begin with # are ignored.
func parseHostKeys(text string) (keys hostKeys, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil || len(options) > 0 || len(algorithms(key)) == 0 {
			return nil, fmt.Errorf("%w: line %d of the SSH host keys is not TYPE KEY, such as \"ssh-ed25519 AAAA...\", "+
				"without a host", trivet.ErrInvalid, n)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// algorithms returns those that prove a key.
func algorithms(key ssh.PublicKey) []string {
	return slices.DeleteFunc(slices.Clone(hostKeyAlgorithms), func(a string) bool {
		return a != key.Type() && !(key.Type() == ssh.KeyAlgoRSA && strings.HasPrefix(a, "rsa-"))
	})
}

// algorithms returns those that prove one of the keys, so that a BMC with several keys proves one that is known.
func (k hostKeys) algorithms() (all []string) {
	if len(k) == 0 {
		return hostKeyAlgorithms
	}
	for _, key := range k {
		for _, a := range algorithms(key) {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// check is an [ssh.HostKeyCallback]: it accepts the known keys, or any where there are none and insecure is set.
func (k hostKeys) check(insecure bool) ssh.HostKeyCallback {
	return func(_ string, _ net.Addr, key ssh.PublicKey) error {
		known := slices.ContainsFunc(k, func(o ssh.PublicKey) bool { return bytes.Equal(o.Marshal(), key.Marshal()) })
		if known || len(k) == 0 && insecure {
			return nil
		}
		return &hostKeyError{key: key, others: len(k)}
	}
}

// hostKeyError: the BMC has a host key that is not accepted. Nothing was sent to it.
type hostKeyError struct {
	key    ssh.PublicKey
	others int // keys that are accepted
}

func (e *hostKeyError) Error() string {
	text := "the BMC's SSH host key is not trusted"
	if e.others > 0 {
		text = "the BMC's SSH host key is none of those in its secret"
	}
	return text + ": it is " + ssh.FingerprintSHA256(e.key)
}

// maxHostKeyLine bounds a key that is shown, in bytes: that of an RSA key of 8192 bits.
const maxHostKeyLine = 1500

// hint says what to write.
func (e *hostKeyError) hint() string {
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(e.key)))
	if len(line) > maxHostKeyLine {
		line = "its public key"
	}
	return "compare it with what the BMC shows; then an admin adds it to sshHostKey in spec.data of its secret: " + line
}
