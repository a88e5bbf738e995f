package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Limits of the search for what an archive contains. The bytes are of a compressed one.
const (
	maxLook      = 256
	maxLookBytes = 64 << 20
)

// What archives of container images contain. Docker's older ones have files that are named by IDs.
var (
	layoutNames = []string{"oci-layout", "index.json", "blobs", "manifest.json", "repositories"}
	layoutBlob  = regexp.MustCompile(`^blobs/sha256/[0-9a-f]{64}$`)
	dockerName  = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}(\.json|\.tar|\.tar\.gz|/.*)?$`)
)

// tarFormat returns the format of an archive's content, and what that is within.
func tarFormat(open func() (io.ReadCloser, error)) (format, within string, err error) {
	content, err := open()
	if err != nil {
		return "", "", err
	}
	defer content.Close()
	var in io.Reader = content
	if _, ok := content.(io.Seeker); !ok {
		in = io.LimitReader(content, maxLookBytes)
	}
	t := tar.NewReader(in)
	blobs, docker := false, false
	for range maxLook {
		name, _, err := nextFile(t)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the end of the archive or of the search
			format, within = searched(blobs, docker)
			return format, within, nil
		case errors.Is(err, tar.ErrHeader):
			return "", "", fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		case err != nil:
			return "", "", err
		case name == "oci-layout":
			return OCI, "", nil
		}
		top, _, _ := strings.Cut(name, "/")
		blobs, docker = blobs || layoutBlob.MatchString(name), docker || dockerName.MatchString(name)
		if !slices.Contains(layoutNames, top) && !dockerName.MatchString(name) {
			return Tar, "", nil
		}
	}
	format, within = searched(blobs, docker)
	return format, within, nil
}

// searched returns the format of an archive that begins as one of a container image does, and has too much in it to
// find its other files.
func searched(blobs, docker bool) (format, within string) {
	switch {
	case blobs:
		return OCI, ""
	case docker:
		return OCI, DockerArchive
	}
	return Tar, ""
}
