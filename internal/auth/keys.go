package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// The files of a key directory. All but the CAs' certificates are secret: mode 0600 in a directory of mode 0700.
const (
	fileCACert    = "ca.pem"
	fileCAKey     = "ca-key.pem"
	fileFormerCAs = "ca-former.pem"             // see successors.go; not there before the CA was rotated
	fileBootCA    = "boot-ca.pem"               // certificates and keys, see bootcas.go
	fileBoot      = trivet.BootKey + ringSuffix // keyrings, see internal/keyring
	fileSeal      = trivet.SealKey + ringSuffix
	fileStore     = trivet.StoreKey + ringSuffix
	ringSuffix    = ".keys"
)

var keyFiles = []string{fileCACert, fileCAKey, fileFormerCAs, fileBootCA, fileBoot, fileSeal, fileStore}

// RingNames are the names of the keys that are rings.
var RingNames = []string{trivet.StoreKey, trivet.SealKey, trivet.BootKey}

// public reports whether a file of a key directory is not secret.
func public(name string) bool { return name == fileCACert || name == fileFormerCAs }

// maxKeyFile bounds each file of a key directory, in bytes.
const maxKeyFile = 64 << 10

// Keys is the keys of a full head. It is safe for concurrent use. Keyrings and boot CAs change; CAs change in the
// directory, for the next start.
type Keys struct {
	CA     *CA             // of the start
	Sealer *Sealer         // with the ring of trivet.SealKey
	values *keyring.Cipher // with the ring of trivet.StoreKey

	mu      sync.Mutex
	rings   map[string]keyring.Ring // guarded by mu; by the name of the key
	bootCAs bootCAs                 // guarded by mu
	bundle  Bundle                  // guarded by mu; the directory as it is
}

// Bundle is the contents of a key directory by file name, for a joining full head or a backup. All of it is secret.
type Bundle map[string][]byte

// Init creates the keys of a new cluster in dir, atomically: after a crash there are all of them or none. It returns
// [trivet.ErrExists] if dir is not empty.
func Init(dir, cluster string) (*Keys, error) {
	ca, caKey, err := newCA(cluster)
	if err != nil {
		return nil, fmt.Errorf("create keys of cluster %s: %w", cluster, err)
	}
	bootCA, err := newBootCA(bootCANamePrefix + cluster)
	if err != nil {
		return nil, fmt.Errorf("create keys of cluster %s: %w", cluster, err)
	}
	bootCAText, err := bootCA.text()
	if err != nil {
		return nil, fmt.Errorf("create keys of cluster %s: %w", cluster, err)
	}
	return Install(dir, Bundle{
		fileBootCA: bootCAText,
		fileCACert: ca,
		fileCAKey:  caKey,
		fileBoot:   keyring.Of(keyring.New()).Text(),
		fileSeal:   keyring.Of(keyring.New()).Text(),
		fileStore:  keyring.Of(keyring.New()).Text(),
	})
}

// Install validates another head's bundle and writes it to dir, as Init does.
func Install(dir string, b Bundle) (*Keys, error) {
	keys, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("install keys in %s: %w", dir, err)
	}
	if err := writeDir(dir, keys.bundle); err != nil {
		return nil, fmt.Errorf("install keys in %s: %w", dir, err)
	}
	return keys, nil
}

// ParseBundle returns the keys of a bundle, such as that of a backup, without writing them anywhere.
func ParseBundle(b Bundle) (*Keys, error) { return parseKeys(b) }

// Load reads the keys that Init or Install wrote. It returns [trivet.ErrNotFound] if there are none, and an error if
// other users can read a secret file.
func Load(dir string) (*Keys, error) {
	b := Bundle{}
	for _, name := range keyFiles {
		data, err := readKeyFile(filepath.Join(dir, name), !public(name))
		if errors.Is(err, fs.ErrNotExist) && name == fileFormerCAs {
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("load keys: %w: %w", trivet.ErrNotFound, err)
		}
		if err != nil {
			return nil, fmt.Errorf("load keys: %w", err)
		}
		b[name] = data
	}
	keys, err := parseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("load keys from %s: %w", dir, err)
	}
	return keys, nil
}

// Ring returns the keys of one of the [RingNames].
func (k *Keys) Ring(name string) keyring.Ring {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rings[name]
}

// Values returns the cipher of the values of the store, which always has the keys of its ring.
func (k *Keys) Values() *keyring.Cipher { return k.values }

// ChangeRing replaces the keys of a name by what change returns, in the directory, synced, and then in use.
func (k *Keys) ChangeRing(dir, name string, change func(keyring.Ring) (keyring.Ring, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	ring, err := change(k.rings[name])
	if err != nil {
		return err
	}
	text, file := ring.Text(), name+ringSuffix
	if bytes.Equal(text, k.bundle[file]) {
		return nil
	}
	if _, err := keyring.Parse(text); err != nil { // the next start must be able to read it
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := k.replaceFile(dir, file, text); err != nil {
		return err
	}
	k.rings[name] = ring
	switch name {
	case trivet.StoreKey:
		k.values.Use(ring)
	case trivet.SealKey:
		k.Sealer.cipher.Use(ring)
	}
	return nil
}

// replaceFile replaces a file in the directory, and its copy in the bundle: after a crash there is the old one or the
// new one.
func (k *Keys) replaceFile(dir, name string, text []byte) error {
	err := renameio.WriteFile(filepath.Join(dir, name), text, modeOf(name), renameio.IgnoreUmask())
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return &trivet.Error{Op: "write", Name: filepath.Join(dir, name),
			Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	k.bundle[name] = text
	return nil
}

func modeOf(name string) fs.FileMode {
	if public(name) {
		return 0o644
	}
	return 0o600
}

// Bundle returns a copy of the keys for another full head or a backup.
func (k *Keys) Bundle() Bundle {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := Bundle{}
	for name, data := range k.bundle {
		b[name] = bytes.Clone(data)
	}
	return b
}

func parseKeys(b Bundle) (*Keys, error) {
	ca, err := parseCA(b[fileCACert], b[fileCAKey], b[fileFormerCAs])
	if err != nil {
		return nil, err
	}
	boot, err := parseBootCAs(b[fileBootCA])
	if err != nil {
		return nil, err
	}
	k := &Keys{CA: ca, bootCAs: boot, bundle: Bundle{}, rings: map[string]keyring.Ring{}}
	for _, name := range RingNames {
		if k.rings[name], err = keyring.Parse(b[name+ringSuffix]); err != nil {
			return nil, fmt.Errorf("%s: %w", name+ringSuffix, err)
		}
	}
	k.Sealer, k.values = NewSealer(k.rings[trivet.SealKey]), keyring.NewCipher(k.rings[trivet.StoreKey])
	for _, name := range keyFiles {
		if data, ok := b[name]; ok {
			k.bundle[name] = bytes.Clone(data)
		}
	}
	return k, nil
}

func readKeyFile(path string, secret bool) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if secret && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: %s is readable by other users (run chmod 600, and replace the keys if it was read)",
			trivet.ErrInvalid, path)
	}
	if info.Size() > maxKeyFile {
		return nil, fmt.Errorf("%w: %s has %d bytes", trivet.ErrTooLarge, path, info.Size())
	}
	return os.ReadFile(path)
}

// writeDir creates dir with the files, synced, by one rename of a temporary directory.
func writeDir(dir string, files Bundle) error {
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, ".keys-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for name, data := range files {
		if err := renameio.WriteFile(filepath.Join(tmp, name), data, modeOf(name), renameio.IgnoreUmask()); err != nil {
			return err
		}
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	// rename(2) replaces an empty directory and refuses any other.
	if err := os.Rename(tmp, dir); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %w", trivet.ErrExists, err)
		}
		return err
	}
	return syncDir(parent)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// year is a year without a leap day, for lifetimes.
const year = 365 * 24 * time.Hour
