#pragma once

#include <cstddef>

/// @file
/// What the memory layer itself does with closed pinned pages (`pinned_pages.hpp`).

namespace simgpu {

/// The host touched a closed page: the engine is told of the access unless the host is up to date,
/// and the page is opened.
void open_after_fault(const void* address, bool writes);

/// Pinned pages are about to be freed.
void forget_pinned_pages(const void* pages, std::size_t bytes);

}  // namespace simgpu
