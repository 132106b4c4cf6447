-- What shop.sqlite holds: made with `sqlite3 shop.sqlite < shop.sql`.
CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    city TEXT NOT NULL
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    price REAL NOT NULL,
    stock INTEGER NOT NULL
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL
);
CREATE VIEW sales AS
    SELECT products.name AS product, sum(quantity) AS sold, sum(quantity * price) AS takings
    FROM orders JOIN products ON products.id = product_id
    GROUP BY products.id;
INSERT INTO customers (name, city) VALUES
    ('Ada', 'London'), ('Grace', 'New York'), ('Edsger', 'Berlin'), ('Wangari', 'Nairobi');
INSERT INTO products (name, price, stock) VALUES
    ('Umbrella', 19.5, 120), ('Sun hat', 24.5, 40), ('Rain boots', 39.0, 0), ('Barometer', 89.0, 7);
INSERT INTO orders (customer_id, product_id, quantity) VALUES
    (1, 1, 2), (2, 2, 1), (1, 4, 1), (3, 1, 1), (4, 2, 3);
