package bmc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
)

// privilegeOperator is sufficient for all commands (§6.8).
const privilegeOperator = 0x03

// nameOnly makes the BMC look up the user by name alone, not by name and privilege (§13.20).
const nameOnly = 0x10

// Status codes of a refused login (§13.24).
const (
	statusNoResources     = 0x01
	statusUnauthorized    = 0x0a // the role
	statusNoResourcesRole = 0x0b
	statusUnauthorizedID  = 0x0d // the name
)

// errSuite: the BMC does not support this cipher suite.
var errSuite = errors.New("the BMC does not support the cipher suite")

// login creates a session with the best suite that the BMC supports.
func (s *rmcpSession) login(ctx context.Context, user, password string) error {
	var errs []error
	for _, suite := range suites {
		r := &rakp{suite: suite, key: []byte(password), who: userAndRole(privilegeOperator|nameOnly, user)}
		err := s.openSession(ctx, r)
		if err == nil {
			return s.prove(ctx, r)
		}
		errs = append(errs, err)
		if !errors.Is(err, errSuite) || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// openSession agrees on the suite and on session IDs (§13.17, §13.18).
func (s *rmcpSession) openSession(ctx context.Context, r *rakp) error {
	r.console = 1 + randomUint32()>>1
	b := append([]byte{0, privilegeOperator, 0, 0}, le32(r.console)...)
	for kind, algorithm := range []byte{r.suite.login, r.suite.integrity, encryptionAES} {
		b = append(b, byte(kind), 0, 0, 8, algorithm, 0, 0, 0)
	}
	err := s.handshake(ctx, payloadOpenRequest, payloadOpenResponse, b, func(got []byte) error {
		if err := checkStatus(got); err != nil {
			return fmt.Errorf("suite %d: %w: %w", r.suite.id, errSuite, err)
		}
		if len(got) != 36 || binary.LittleEndian.Uint32(got[4:]) != r.console {
			return errPacket
		}
		if got[16] != r.suite.login || got[24] != r.suite.integrity || got[32] != encryptionAES {
			return fmt.Errorf("suite %d: %w: %w: it chose other algorithms", r.suite.id, trivet.ErrUnavailable,
				errSuite)
		}
		r.bmc = binary.LittleEndian.Uint32(got[8:])
		return nil
	})
	if errors.Is(err, errNoAnswer) && ctx.Err() == nil {
		return fmt.Errorf("suite %d: %w: %w", r.suite.id, errSuite, err) // some BMCs drop what they do not support
	}
	return err
}

// prove proves to each side that the other has the password (§13.20 to §13.23).
func (s *rmcpSession) prove(ctx context.Context, r *rakp) error {
	r.consoleRandom = make([]byte, 16)
	rand.Read(r.consoleRandom)
	b := append([]byte{0, 0, 0, 0}, le32(r.bmc)...)
	b = append(b, r.consoleRandom...)
	b = append(b, r.who[0], 0, 0)
	b = append(b, r.who[1:]...)
	err := s.handshake(ctx, payloadRAKP1, payloadRAKP2, b, func(got []byte) error {
		if err := checkStatus(got); err != nil {
			return err
		}
		if len(got) < 40 || binary.LittleEndian.Uint32(got[4:]) != r.console {
			return errPacket
		}
		r.bmcRandom, r.guid = got[8:24], got[24:40]
		if !hmac.Equal(got[40:], r.fromBMC()) {
			return fmt.Errorf("%w: wrong password", trivet.ErrUnauthenticated)
		}
		return nil
	})
	if err != nil {
		return err
	}
	b = append(append([]byte{1, 0, 0, 0}, le32(r.bmc)...), r.fromConsole()...)
	err = s.handshake(ctx, payloadRAKP3, payloadRAKP4, b, func(got []byte) error {
		if err := checkStatus(got); err != nil {
			return err
		}
		if len(got) < 8 || binary.LittleEndian.Uint32(got[4:]) != r.console || !hmac.Equal(got[8:], r.confirmation()) {
			return errPacket
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.console, s.bmc = r.console, r.bmc
	s.keys, err = r.keys()
	return err
}

// checkStatus checks the status code, the second byte of every answer of a login.
func checkStatus(got []byte) error {
	if len(got) < 2 {
		return errPacket
	}
	switch got[1] {
	case 0:
		return nil
	case statusNoResources, statusNoResourcesRole:
		return fmt.Errorf("%w: all sessions of the BMC are in use", trivet.ErrUnavailable)
	case statusUnauthorized:
		return fmt.Errorf("%w: the user lacks the operator privilege", trivet.ErrUnauthenticated)
	case statusUnauthorizedID:
		return fmt.Errorf("%w: no such user", trivet.ErrUnauthenticated)
	}
	return fmt.Errorf("%w: the BMC refused the login with status %#02x", trivet.ErrUnavailable, got[1])
}

func randomUint32() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:])
}
