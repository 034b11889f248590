#pragma once

#include <cstdint>
#include <functional>
#include <string>

/// @file
/// Marks on recorded ops, by which a backward knows whose forward it goes through.

namespace lockstep::autograd {

/// A mark that ops carry from their recording on; 0 marks nothing.
using GraphTag = std::uint32_t;

/// A tag that no op carries yet.
GraphTag new_graph_tag();

/// Calls `begin` at the start of every backward that goes through an op with the tag: on its
/// thread, once it is known what it reaches, and before any op or hook of it runs. The last call
/// for a tag counts.
void on_backward_through(GraphTag tag, std::function<void()> begin);
/// Refuses from now on every backward that goes through an op with the tag, in the place of telling
/// of it.
/// @param reason what its error says.
void close_graph_tag(GraphTag tag, std::string reason);

/// What the engine calls. @throws InvalidArgument, with the reason, for a tag that was closed.
void check_open(GraphTag tag);
/// Tells of a backward through the tag whoever wants to know.
void begin_backward_through(GraphTag tag);

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
