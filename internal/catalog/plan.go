package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
)

const (
	// chunkSize is small, so that a plan does not need one long run of free pages in the file.
	chunkSize = 256 << 10
	// maxPlanSize is far above any plan; a plan is in memory while it is stored.
	maxPlanSize = 1 << 30
	// planWindow is the window of the compression, and the least memory that decompression needs.
	planWindow = 4 << 20
)

// PlanInfo describes a stored plan.
type PlanInfo struct {
	// Size and SHA256 (hex) of the plan as it was given.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Chunks is the number of pieces that it is stored in.
	Chunks int `json:"chunks"`
}

func (p PlanInfo) check() error {
	if p.Size < 0 || p.Size > maxPlanSize || p.Chunks < 0 || len(p.SHA256) != 2*sha256.Size ||
		!isHexPrefix(p.SHA256) {
		return fmt.Errorf("plan of %d bytes in %d chunks with sha256 %q: not possible", p.Size, p.Chunks,
			p.SHA256)
	}
	return nil
}

func decodePlanInfo(value []byte) (PlanInfo, error) {
	return decode[PlanInfo]("plan", value)
}

// PutPlan stores the plan of an operation, whole or not at all, replacing an earlier one. Errors:
// those of r; ErrPlanFixed once a step has begun or the operation has ended; ErrNotFound for the
// operation; ErrNoSpace.
func (c *Catalog) PutPlan(ctx context.Context, id OperationID, r io.Reader) (PlanInfo, error) {
	return c.putDocument(ctx, id, bucketPlan, r, func(op Operation) error {
		if op.Changed || op.State.Ended() {
			return fmt.Errorf("operation is %s: %w", op.State, ErrPlanFixed)
		}
		return nil
	})
}

// PutBatchPlan stores the plan of a batch of an operation. Such a plan is made while the operation
// runs. It is stored whole or not at all, and only once, because steps that were decided by it
// must not see it change. name is that of the batch: lower-case letters, digits and dashes.
// Errors: those of r; ErrExists; ErrNotRunning; ErrNotFound for the operation; ErrNoSpace.
func (c *Catalog) PutBatchPlan(ctx context.Context, id OperationID, name string, r io.Reader) (
	PlanInfo, error) {
	bucket, err := batchBucket(name)
	if err != nil {
		return PlanInfo{}, err
	}
	return c.putDocument(ctx, id, bucket, r, func(op Operation) error {
		if op.State != Running {
			return fmt.Errorf("operation is %s: %w", op.State, ErrNotRunning)
		}
		return nil
	})
}

func (c *Catalog) putDocument(ctx context.Context, id OperationID, name []byte, r io.Reader,
	may func(Operation) error) (PlanInfo, error) {
	compressed, info, err := compressPlan(r)
	if err != nil {
		return PlanInfo{}, fmt.Errorf("put plan of operation %s: %w", id, err)
	}
	value, err := json.Marshal(info)
	if err != nil {
		return PlanInfo{}, fmt.Errorf("put plan of operation %s: %w", id, err)
	}
	err = c.updateOperation(ctx, id, func(o *opTx) ([]Event, error) {
		if err := may(o.op); err != nil {
			return nil, err
		}
		if o.b.Bucket(name) != nil {
			if !bytes.Equal(name, bucketPlan) {
				return nil, fmt.Errorf("%s: %w", name, ErrExists)
			}
			if err := o.b.DeleteBucket(name); err != nil {
				return nil, err
			}
		}
		plan, err := o.b.CreateBucket(name)
		if err != nil {
			return nil, err
		}
		document := Document{Name: string(name), Info: info}
		for i := range info.Chunks {
			chunk := compressed[i*chunkSize : min((i+1)*chunkSize, len(compressed))]
			if err := plan.Put(sequenceKey(uint64(i)), chunk); err != nil {
				return nil, err
			}
			document.Chunks = append(document.Chunks, chunk)
		}
		o.change.Documents = append(o.change.Documents, document)
		return nil, plan.Put(keyPlanInfo, value)
	})
	if err != nil {
		return PlanInfo{}, fmt.Errorf("put plan of operation %s: %w", id, err)
	}
	return info, nil
}

func compressPlan(r io.Reader) ([]byte, PlanInfo, error) {
	var compressed bytes.Buffer
	w, err := zstd.NewWriter(&compressed, zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(planWindow))
	if err != nil {
		return nil, PlanInfo{}, err
	}
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(r, maxPlanSize+1))
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, PlanInfo{}, err
	}
	if size > maxPlanSize {
		return nil, PlanInfo{}, fmt.Errorf("plan is larger than %d bytes", int64(maxPlanSize))
	}
	return compressed.Bytes(), PlanInfo{
		Size:   size,
		SHA256: hex.EncodeToString(hash.Sum(nil)),
		Chunks: (compressed.Len() + chunkSize - 1) / chunkSize,
	}, nil
}

// Plan returns the plan of an operation, checked against its hash. Errors: ErrNotFound when there
// is no operation or no plan, *DamagedError when the hash differs.
func (c *Catalog) Plan(ctx context.Context, id OperationID) ([]byte, error) {
	return c.document(ctx, id, bucketPlan)
}

// BatchPlan returns the plan of a batch. Errors: those of Plan.
func (c *Catalog) BatchPlan(ctx context.Context, id OperationID, name string) ([]byte, error) {
	bucket, err := batchBucket(name)
	if err != nil {
		return nil, err
	}
	return c.document(ctx, id, bucket)
}

func (c *Catalog) document(ctx context.Context, id OperationID, name []byte) ([]byte, error) {
	var info PlanInfo
	var compressed []byte
	err := c.view(ctx, func(tx *bolt.Tx) (err error) {
		compressed = nil
		b := tx.Bucket(bucketOperations).Bucket([]byte(id))
		if b == nil {
			return ErrNotFound
		}
		plan := b.Bucket(name)
		if plan == nil {
			return fmt.Errorf("%s: %w", name, ErrNotFound)
		}
		if info, err = decodePlanInfo(plan.Get(keyPlanInfo)); err != nil {
			return err
		}
		for i := range info.Chunks {
			chunk := plan.Get(sequenceKey(uint64(i)))
			if chunk == nil {
				return fmt.Errorf("%w: chunk %d of %d of the plan is missing", errRecord, i, info.Chunks)
			}
			compressed = append(compressed, chunk...)
		}
		return nil
	})
	if err == nil {
		var plan []byte
		if plan, err = decompressPlan(compressed, info); err == nil {
			return plan, nil
		}
		err = c.wrap(err)
	}
	return nil, fmt.Errorf("get plan of operation %s: %w", id, err)
}

func decompressPlan(compressed []byte, info PlanInfo) ([]byte, error) {
	// The limit prevents a damaged chunk from expanding into all memory.
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(uint64(max(info.Size, planWindow))))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	plan, err := d.DecodeAll(compressed, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: plan: %w", errRecord, err)
	}
	if sum := sha256.Sum256(plan); hex.EncodeToString(sum[:]) != info.SHA256 {
		return nil, fmt.Errorf("%w: plan: sha256 is %x, want %s", errRecord, sum, info.SHA256)
	}
	return plan, nil
}
