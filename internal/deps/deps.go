//go:build deps

// Package deps holds module requirements while the packages that use them are written. Deleted before the first tag.
package deps

import (
	_ "github.com/anishathalye/porcupine"
	_ "github.com/bougou/go-ipmi/pkg/client"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/diskfs/go-diskfs"
	_ "github.com/goccy/go-yaml"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-containerregistry/pkg/v1/layout"
	_ "github.com/google/go-containerregistry/pkg/v1/mutate"
	_ "github.com/google/go-containerregistry/pkg/v1/remote"
	_ "github.com/google/renameio/v2"
	_ "github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	_ "github.com/insomniacslk/dhcp/dhcpv4/server4"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/u-root/u-root/pkg/boot/kexec"
	_ "github.com/u-root/u-root/pkg/cpio"
	_ "github.com/u-root/u-root/pkg/kmodule"
	_ "github.com/u-root/u-root/pkg/mount"
	_ "github.com/ulikunitz/xz"
	_ "github.com/vbauerster/mpb/v8"
	_ "github.com/vishvananda/netlink"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	_ "go.uber.org/zap"
	_ "golang.org/x/crypto/ssh"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "golang.org/x/time/rate"
	_ "pgregory.net/rapid"
)
