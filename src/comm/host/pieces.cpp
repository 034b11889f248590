#include "comm/host/pieces.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::comm::host {

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::vector<Part> parts_of(const Operation& operation, int ranks) {
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t share = operation.count / ranks + (rank < operation.count % ranks ? 1 : 0);
    const std::int64_t size =
        operation.counts.empty() ? share : operation.counts[static_cast<std::size_t>(rank)];
    parts.push_back({begin, size});
    begin += size;
  }
  return parts;
}

Pieces::Pieces(std::vector<Part> all, std::int64_t longest_piece)
    : parts(std::move(all)), piece(longest_piece) {
  std::int64_t longest = 0;
  for (const Part& part : parts) longest = std::max(longest, part.size);
  rounds = (longest + piece - 1) / piece;
}

Part Pieces::piece_of(int rank, std::int64_t round) const {
  const Part part = parts[static_cast<std::size_t>(rank)];
  const std::int64_t begin = std::min(round * piece, part.size);
  return {part.begin + begin, std::min(piece, part.size - begin)};
}

}  // namespace lockstep::comm::host
