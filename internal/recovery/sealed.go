package recovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
)

// secrets is what a backup has besides the store. All of it is secret.
type secrets struct {
	Keys auth.Bundle `json:"keys"`
	Head HeadConfig  `json:"head"`
}

// HeadConfig is how the head that made a backup was started, for an operator who starts one again.
type HeadConfig struct {
	Name       string   `json:"name"`
	API        []string `json:"api"`
	Boot       []string `json:"boot"`
	Heartbeat  string   `json:"heartbeat,omitempty"`  // --heartbeat
	StoreQuota string   `json:"storeQuota,omitempty"` // --store-quota
	VIP        string   `json:"vip,omitempty"`        // --vip
}

// seal encrypts the secrets to a recovery key.
func (s *secrets) seal(recipient string) ([]byte, error) {
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, to)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// unseal opens the secrets of a backup.
func (k *Key) unseal(box []byte) (s secrets, err error) {
	identities := make([]age.Identity, len(k.identities))
	for i, id := range k.identities {
		identities[i] = id
	}
	r, err := age.Decrypt(bytes.NewReader(box), identities...)
	if err != nil {
		return s, fmt.Errorf("%w: its keys cannot be decrypted: %w", archive.ErrDamaged, err)
	}
	text, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil { // not with the text, which is secret
		return secrets{}, fmt.Errorf("%w: its keys", archive.ErrDamaged)
	}
	return s, nil
}
