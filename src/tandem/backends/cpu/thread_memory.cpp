#include "tandem/backends/cpu/thread_memory.h"

#include "tandem/backends/cpu/allocator.h"

namespace tandem::cpu {

namespace {

struct Piece {
  void* data = nullptr;
  size_t bytes = 0;
};
// Has no destructor, so that it can be used until the thread is gone. What is taken after ~Keeper is left to the
// process's end.
constinit thread_local Piece t_pieces[static_cast<int>(ScratchSlot::count)];

struct Keeper {
  ~Keeper() {
    for (Piece& piece : t_pieces) {
      release(0, piece.data, piece.bytes);
      piece = {};
    }
  }
  void begin() {}  // makes the object, and so its end
};
constinit thread_local bool t_has_keeper = false;

}  // namespace

void* thread_scratch(ScratchSlot slot, size_t bytes) {
  Piece& piece = t_pieces[static_cast<int>(slot)];
  if (piece.bytes < bytes || !piece.data) [[unlikely]] {
    if (!t_has_keeper) {
      thread_local Keeper keeper;
      keeper.begin();
      t_has_keeper = true;
    }
    release(0, piece.data, piece.bytes);
    piece = {};
    piece = {allocate(0, bytes), bytes};
  }
  return piece.data;
}

}  // namespace tandem::cpu
