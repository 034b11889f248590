#pragma once

#include <cstddef>

/// @file
/// The address ranges of layout.hpp, and the pages behind them.

namespace simgpu {

/// Reserves all ranges on first use. @return false if the addresses are taken; says why on stderr.
bool reserve_address_space();

/// Backs whole pages with memory that reads as `Pattern::fresh`. Pages that are never written cost
/// nothing. @return false where the system refuses.
bool commit_pages(void* pages, std::size_t bytes);

/// Gives the memory of whole pages back; they read as `Pattern::freed` from then on.
void poison_pages(void* pages, std::size_t bytes);

/// Makes pages inaccessible, as before they were committed.
void decommit_pages(void* pages, std::size_t bytes);

/// Sets or clears whole pages of a map of bits (layout.hpp) without touching them.
void map_bit_pages(void* pages, std::size_t bytes, bool value);

}  // namespace simgpu
