package recovery

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/trivet-project/trivet/internal/membership"
)

// Unplace makes a data directory what a recovery had left that was killed after it had put the keys in place.
func Unplace(dir string, p *Plan) error {
	text, err := json.Marshal(p)
	temp := filepath.Join(dir, membership.RecoveringDir)
	return errors.Join(err, os.MkdirAll(filepath.Join(temp, "new"), 0o700),
		os.Rename(filepath.Join(dir, "store"), filepath.Join(temp, "new", "store")),
		os.Rename(filepath.Join(dir, dataName), filepath.Join(temp, "new", dataName)),
		os.WriteFile(filepath.Join(temp, "ready"), text, 0o600))
}
