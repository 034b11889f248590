#include "checkpoint/snapshot.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <span>

#include "checkpoint/names.hpp"
#include "checkpoint/share.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/io/crc32c.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::checkpoint {
namespace {

/// How many bytes a file has before the JSON: the header's size.
constexpr std::size_t header_begin = 8;

/// The files of one state, and what this rank has of them.
struct Stem {
  std::string name;
  Layout layout;
  std::vector<Piece> pieces;  ///< of the layout's tensors
  std::vector<Extent> extents;
};

TensorSpec spec_of(const Piece& piece) {
  return {.name = piece.name,
          .dtype = piece.tensor.dtype(),
          .shape = piece.range ? piece.range->whole : piece.tensor.shape()};
}

void check_range(const std::string& state, const Piece& piece) {
  if (!piece.range) return;
  const auto& [whole, begin, count] = *piece.range;
  LOCKSTEP_CHECK(count == piece.tensor.numel() && begin >= 0 && begin <= numel(whole) - count,
                 InvalidArgument, state, " ", io::in_quotes(piece.name), ": elements ", begin,
                 " and on, ", count, " of them, are not the ", piece.tensor.numel(),
                 " that the piece has, or not in ", whole);
}

std::vector<Piece> pieces_of(const TensorState& state, bool takes_more) {
  std::vector<Piece> pieces = state.pieces();
  if (takes_more && state.more) std::ranges::move(state.more(), std::back_inserter(pieces));
  return pieces;
}

/// What a rank has of a piece that is rank 0's: all or nothing.
Piece part_of(Piece piece, int rank) {
  if (!piece.of_rank_0) return piece;
  const std::int64_t count = rank == 0 ? piece.tensor.numel() : 0;
  piece.range = parallel::ShardRange{.whole = piece.tensor.shape(), .begin = 0, .count = count};
  piece.tensor = piece.tensor.detach().contiguous().reshape({-1}).slice(0, 0, count);
  return piece;
}

Stem plan_stem(const std::string& name, const std::vector<Piece>& pieces, int rank, int size,
               std::uint64_t file_bytes) {
  std::vector<TensorSpec> specs;
  std::map<std::string_view, std::size_t> by_name;
  for (const Piece& piece : pieces) {
    check_range(name, piece);
    by_name.emplace(piece.name, specs.size());
    specs.push_back(spec_of(piece));
  }
  Stem stem{.name = name,
            .layout = Layout(name, std::move(specs), file_bytes),
            .pieces = {},
            .extents = {}};
  std::vector<std::optional<parallel::ShardRange>> ranges;
  for (const PlannedTensor& tensor : stem.layout.tensors()) {
    stem.pieces.push_back(part_of(pieces[by_name.at(tensor.spec.name)], rank));
    ranges.push_back(stem.pieces.back().range);
  }
  std::vector<std::uint64_t> sizes;
  for (const PlannedFile& file : stem.layout.files()) sizes.push_back(file.size);
  stem.extents = own_extents(stem.layout.tensors(), ranges, equal_parts(sizes, rank, size));
  return stem;
}

/// Runs of extents that follow one another in a file become one segment.
struct Run {
  std::size_t file;
  std::uint64_t offset, bytes;
};

void join(std::vector<Run>& runs, const Run& next) {
  if (!runs.empty() && runs.back().file == next.file &&
      runs.back().offset + runs.back().bytes == next.offset)
    runs.back().bytes += next.bytes;
  else
    runs.push_back(next);
}

/// Headers are rank 0's.
std::vector<Run> runs_of(const Stem& stem, bool has_headers) {
  std::vector<Run> runs;
  auto next = stem.extents.begin();
  for (std::size_t file = 0; file < stem.layout.files().size(); ++file) {
    if (has_headers) join(runs, {file, 0, stem.layout.files()[file].header.size()});
    for (; next != stem.extents.end() && next->file == file; ++next)
      join(runs, {file, next->offset, next->bytes});
  }
  return runs;
}

void copy(std::span<std::byte> to, const std::byte* from) {
  parallel_for(std::ssize(to), 1 << 20, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to.data() + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

void copy_later(const Tensor& flat, std::uint64_t from, std::span<std::byte> to,
                const Staging& staging, LaterCopies& later) {
  if (flat.device().is_cpu()) return later.add(flat, from, to);
  while (!to.empty()) {
    const auto [bytes, is_pinned] = staging.stretch(to);
    later.add(flat, from, bytes, is_pinned);
    from += bytes.size();
    to = to.subspan(bytes.size());
  }
}

/// Copies some bytes of a tensor's elements in row-major order, at once or later.
/// @param to of the staging.
void copy_bytes(const Piece& piece, std::uint64_t from, std::span<std::byte> to,
                const Staging& staging, LaterCopies& later) {
  const NoGradGuard no_recording;
  const Tensor& tensor = piece.tensor;
  const auto width = static_cast<std::uint64_t>(size_of(tensor.dtype()));
  Tensor flat = tensor.detach().contiguous().reshape({tensor.numel()});
  const bool is_small = tensor.device().is_cpu() && to.size() <= page_bytes;
  if (piece.copied_later && !is_small) return copy_later(flat, from, to, staging, later);
  if (!tensor.device().is_cpu()) {  // only what is needed leaves the device
    const std::uint64_t first = from / width, last = (from + to.size() + width - 1) / width;
    flat = flat.slice(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(last)).to(cpu);
    from -= first * width;
  }
  copy(to, static_cast<const std::byte*>(flat.data_ptr()) + from);
}

/// Copies what a rank has of one state, and adds it to the snapshot.
void stage(const Stem& stem, bool has_headers, Staging& staging, LaterCopies& later,
           Snapshot& snapshot) {
  const std::size_t first_file = snapshot.files.size();
  for (const PlannedFile& file : stem.layout.files()) {
    snapshot.files.emplace_back(file.name, file.size);
    snapshot.headers = io::crc32c(std::as_bytes(std::span(file.header)), snapshot.headers);
    snapshot.header_texts += detail::concat('\n', file.name, ": ");
    snapshot.header_texts.append(file.header, header_begin);
  }
  auto next = stem.extents.begin();
  for (const Run& run : runs_of(stem, has_headers)) {
    const std::span<std::byte> memory = staging.take(run.bytes, run.offset);
    snapshot.segments.push_back({first_file + run.file, run.offset, memory});
    const PlannedFile& file = stem.layout.files()[run.file];
    if (has_headers && run.offset == 0)
      copy(memory.first(file.header.size()),
           reinterpret_cast<const std::byte*>(file.header.data()));
    for (; next != stem.extents.end() && next->file == run.file &&
           next->offset < run.offset + run.bytes;
         ++next)
      copy_bytes(stem.pieces[next->tensor], next->from,
                 memory.subspan(next->offset - run.offset, next->bytes), staging, later);
  }
}

/// What headers say of the tensor at a place in them: in a file of that name.
std::string tensor_at(std::string_view headers, std::size_t place) {
  const std::size_t begin = headers.find('"', headers.rfind('}', place) + 1);
  if (begin == std::string_view::npos) return "nothing";
  const std::string_view tensor = headers.substr(begin, headers.find('}', begin) - begin + 1);
  const std::size_t line = headers.rfind('\n', place), end = headers.find(": ", line);
  return detail::concat(tensor, " in ", headers.substr(line + 1, end - line - 1));
}

std::vector<Stem> plan_all(const Registry& registry, bool takes_more, int rank, int size,
                           std::uint64_t file_bytes) {
  std::vector<Stem> stems;
  for (const auto& [name, state] : registry.tensors)
    stems.push_back(plan_stem(name, pieces_of(state, takes_more), rank, size, file_bytes));
  return stems;
}

SnapshotSize size_of(std::span<const Stem> stems, bool has_headers) {
  SnapshotSize size;
  for (const Stem& stem : stems) {
    for (const Run& run : runs_of(stem, has_headers)) {
      size.bytes += run.bytes;
      ++size.runs;
    }
    for (const Piece& piece : stem.pieces)
      if (!piece.tensor.device().is_cpu()) size.device = piece.tensor.device();
  }
  return size;
}

}  // namespace

std::string Snapshot::plan_signature() const {
  std::string plan = detail::concat("step ", step, ", headers ", headers, ": ");
  for (const auto& [name, size] : files) plan += detail::concat(name, ", ", size, " bytes; ");
  for (const auto& [name, text] : texts) plan += detail::concat(name, "; ");
  return plan + value_names;
}

std::string Snapshot::compare_plan(std::string_view of_first,
                                   std::string_view headers_of_first) const {
  constexpr std::size_t shown = 1000;
  const std::string plan = plan_signature();
  if (plan == of_first) return {};
  const auto [own, other] = std::ranges::mismatch(header_texts, headers_of_first);
  if (own == header_texts.end() || other == headers_of_first.end())
    return detail::concat("it would save ", plan.substr(0, shown), " and rank 0 ",
                          of_first.substr(0, shown));
  const auto at = static_cast<std::size_t>(own - header_texts.begin());
  return detail::concat("it would save ", tensor_at(header_texts, at), " and rank 0 ",
                        tensor_at(headers_of_first, at));
}

SnapshotSize size_of_snapshot(const Registry& registry, int rank, int size,
                              std::uint64_t file_bytes) {
  return size_of(plan_all(registry, false, rank, size, file_bytes), rank == 0);
}

Snapshot take_snapshot(const Registry& registry, std::int64_t step, bool takes_more, int rank,
                       int size, std::uint64_t file_bytes, Staging& staging, LaterCopies& later) {
  const bool is_first = rank == 0;
  Snapshot snapshot;
  snapshot.step = step;
  const std::vector<Stem> stems = plan_all(registry, takes_more, rank, size, file_bytes);
  for (const Stem& stem : stems)
    snapshot.texts.emplace_back(detail::concat(stem.name, index_suffix), stem.layout.index());
  const SnapshotSize memory = size_of(stems, is_first);
  staging.reserve(memory.bytes, memory.runs);
  for (const Stem& stem : stems) stage(stem, is_first, staging, later, snapshot);
  NamedValues own;
  for (const auto& [name, state] : registry.values) {
    (state.load_on_new_rank ? own : snapshot.shared).emplace(name, state.values());
    snapshot.value_names += name + (state.load_on_new_rank ? " of each rank; " : "; ");
  }
  snapshot.own_values = {{rank, write_values(own)}};
  raise_background_failure();  // what was copied may be garbage
  return snapshot;
}

}  // namespace lockstep::checkpoint
