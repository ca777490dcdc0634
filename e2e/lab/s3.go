package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// S3 is an S3 server over a folder. A restart changes neither its port nor its buckets.
type S3 struct {
	Endpoint  string // http://127.0.0.1:port
	AccessKey string
	SecretKey string

	root    string
	spawner *spawner
	process *process
}

// StartS3 starts an S3 server with all its data below dir, and waits until
// it answers. It ends with Close, or with this process.
func StartS3(ctx context.Context, home Home, dir string) (*S3, error) {
	root := filepath.Join(dir, "buckets")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if _, err := os.Stat(home.bin("versitygw")); err != nil {
		return nil, fmt.Errorf("start S3 server: it is not built: run make lab: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	s := &S3{Endpoint: "http://" + address, AccessKey: "AKIALABACCESSKEY",
		SecretKey: "lab-secret-0123456789abcdefghijklmnopqr", root: root, spawner: newSpawner()}
	s.process = &process{
		role: "versitygw",
		args: []string{home.bin("versitygw"), "--port", address, "--quiet", "posix", root},
		env:  []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey},
		log:  filepath.Join(dir, "versitygw.log"),
	}
	if err := s.Restart(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// CreateBucket makes a bucket; it may be there.
func (s *S3) CreateBucket(name string) error {
	if err := os.Mkdir(filepath.Join(s.root, name), 0o755); err != nil &&
		!errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make bucket: %w", err)
	}
	return nil
}

// URL is the place as mgmtctl --store takes it; prefix may be empty.
func (s *S3) URL(bucket, prefix string) string {
	if prefix != "" {
		bucket += "/" + prefix
	}
	return "s3://" + bucket + "?endpoint=" + s.Endpoint
}

// Root is the folder in which each bucket is a folder, and each object a file.
func (s *S3) Root() string { return s.root }

// Env are the variables that give a program the credentials.
func (s *S3) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}

// Kill is kill -9: a request that is under way is lost.
func (s *S3) Kill() { s.process.kill() }

// Restart starts the server again after Kill and waits until it answers.
func (s *S3) Restart(ctx context.Context) error {
	if err := s.spawner.start(s.process); err != nil {
		return err
	}
	client := &http.Client{Timeout: 2 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	return s.process.wait(ctx, "the S3 server", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close() // any answer will do, even one that denies
	})
}

// Close ends the server. What it stored stays.
func (s *S3) Close() {
	s.process.kill()
	s.spawner.close()
}
