// Counts the heap bytes that a process holds and their highest sum. Preloaded (LD_PRELOAD) in front of both sides of
// the memory case, so that one method measures both. glibc only: it calls the allocator's own entry points.
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

static atomic_size_t live, peak;

size_t heap_live(void) { return atomic_load(&live); }
size_t heap_peak(void) { return atomic_load(&peak); }
void heap_reset(void) { atomic_store(&peak, atomic_load(&live)); }

static void* taken(void* block) {
  if (!block) return block;
  const size_t bytes = malloc_usable_size(block);
  const size_t now = atomic_fetch_add(&live, bytes) + bytes;
  size_t highest = atomic_load(&peak);
  while (now > highest && !atomic_compare_exchange_weak(&peak, &highest, now)) {
  }
  return block;
}

static void given_back(void* block) {
  if (block) atomic_fetch_sub(&live, malloc_usable_size(block));
}

void* malloc(size_t bytes) { return taken(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return taken(__libc_calloc(count, bytes)); }
void* memalign(size_t alignment, size_t bytes) { return taken(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return taken(__libc_memalign(alignment, bytes)); }

int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = taken(__libc_memalign(alignment, bytes));
  return *block ? 0 : ENOMEM;
}

void* realloc(void* block, size_t bytes) {
  const size_t before = block ? malloc_usable_size(block) : 0;
  void* moved = __libc_realloc(block, bytes);
  if (moved || bytes == 0) atomic_fetch_sub(&live, before);
  return taken(moved);
}

void free(void* block) {
  given_back(block);
  __libc_free(block);
}
