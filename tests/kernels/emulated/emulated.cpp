// The tables of the emulated levels.
#include "kernels/emulated/emulated.h"

#include "kernels/levels.h"

namespace picolm {

void emulated_fill_avxvnni(Kernels& table);
void emulated_fill_avx512(Kernels& table);
void emulated_fill_amx(Kernels& table);

std::vector<const Kernels*> emulated_levels() {
    static const Kernels avx512 = [] {
        Kernels table{};
        fill_generic(table);
        emulated_fill_avx512(table);
        table.name = "emulated_avx512";
        return table;
    }();
    static const Kernels amx = [] {
        Kernels table = avx512;
        emulated_fill_amx(table);
        table.name = "emulated_amx";
        return table;
    }();
    std::vector<const Kernels*> levels = {&avx512, &amx};
    if (const Kernels* avx2 = find_kernels("avx2")) {
        static const Kernels avxvnni = [&] {
            Kernels table = *avx2;
            emulated_fill_avxvnni(table);
            table.name = "emulated_avxvnni";
            return table;
        }();
        levels.push_back(&avxvnni);
    }
    return levels;
}

}  // namespace picolm
