#pragma once

#include <cstdint>
#include <string>

/// @file
/// Marks on recorded ops, by which a backward knows whose forward it goes through.

namespace lockstep::autograd {

/// A mark that ops carry from their recording on; 0 marks nothing.
using GraphTag = std::uint32_t;

/// A tag that no op carries yet.
GraphTag new_graph_tag();

/// Refuses from now on every backward that goes through an op with the tag.
/// @param reason what its error says.
void close_graph_tag(GraphTag tag, std::string reason);
/// @throws InvalidArgument, with the reason, for a tag that was closed.
void check_open(GraphTag tag);

/// Marks what the calling thread records until the end of scope; an inner scope's tag replaces that
/// of the scope around it.
class TagGuard {
 public:
  /// Sets the tag.
  explicit TagGuard(GraphTag tag) noexcept;
  TagGuard(const TagGuard&) = delete;
  TagGuard& operator=(const TagGuard&) = delete;
  ~TagGuard();

 private:
  GraphTag previous_;
};

}  // namespace lockstep::autograd
