package kit

import "slices"

// Turns runs measurement functions in turn, so that other load affects all of them alike. It returns their medians.
func Turns(rounds int, runs []func() ([]float64, error)) ([][]float64, error) {
	all := make([][][]float64, len(runs)) // by function, then by measurement
	for range max(rounds, 1) {
		for i, run := range runs {
			values, err := run()
			if err != nil {
				return nil, err
			}
			if all[i] == nil {
				all[i] = make([][]float64, len(values))
			}
			for k, v := range values {
				all[i][k] = append(all[i][k], v)
			}
		}
	}
	medians := make([][]float64, len(runs))
	for i := range all {
		for _, values := range all[i] {
			slices.Sort(values)
			medians[i] = append(medians[i], values[len(values)/2])
		}
	}
	return medians, nil
}
