CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    product text NOT NULL,
    quantity integer NOT NULL CHECK (quantity > 0)
);
